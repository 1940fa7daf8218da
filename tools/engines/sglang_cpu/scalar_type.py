"""Names of quantised number formats, as `sgl_kernel.scalar_type` offers them.

SGLang's quantisation modules read these names at import time to build tables of supported formats. A format is
described by how its bits are spent; no value is ever encoded or decoded with it here.
"""

from dataclasses import dataclass
from types import SimpleNamespace


@dataclass(frozen=True)
class ScalarType:
    """One number format.

    Attributes:
        exponent: exponent bits; 0 for integers.
        mantissa: value bits without the sign.
        signed: whether one more bit holds the sign.
        bias: what is added to a value before it is stored.
        finite_only: the format has no infinities.
    """

    exponent: int
    mantissa: int
    signed: bool
    bias: int = 0
    finite_only: bool = False

    @property
    def size_bits(self) -> int:
        """Bits of one stored value."""
        return self.exponent + self.mantissa + self.signed

    @property
    def id(self) -> int:
        """A number that tells formats apart within a process."""
        return hash((self.exponent, self.mantissa, self.signed, self.bias, self.finite_only))

    def is_integer(self) -> bool:
        return self.exponent == 0

    def is_floating_point(self) -> bool:
        return self.exponent > 0

    def has_bias(self) -> bool:
        return self.bias != 0


scalar_types = SimpleNamespace(
    int4=ScalarType(0, 3, signed=True),
    uint4=ScalarType(0, 4, signed=False),
    int8=ScalarType(0, 7, signed=True),
    uint8=ScalarType(0, 8, signed=False),
    uint4b8=ScalarType(0, 4, signed=False, bias=8),
    uint8b128=ScalarType(0, 8, signed=False, bias=128),
    float4_e2m1f=ScalarType(2, 1, signed=True, finite_only=True),
    float8_e4m3fn=ScalarType(4, 3, signed=True, finite_only=True),
    float8_e5m2=ScalarType(5, 2, signed=True),
    float16=ScalarType(5, 10, signed=True),
    bfloat16=ScalarType(8, 7, signed=True),
)
