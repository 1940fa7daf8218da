"""No secret reaches a database, and nothing else is lost on the way there."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import create_engine, text
from support import records
from support.stores import opened

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.study import ExportRecord, StudyState
from tuner.store import Store, driver_url
from tuner.store.tables import Base

SECRETS = ("hf_abcdefghijklmnopqrstuvwx", "sk-abcdefghijklmnopqrstuvwx", "Sesame1!", "hunter2pass")


def test_no_secret_reaches_any_column(store: Store, storage_url: str) -> None:
    token, key, password, plain = SECRETS
    study = replace(
        records.study(),
        space_text=f"env: {{HF_TOKEN: {plain}}}",
        space=records.space().model_copy(
            update={
                "description": f"see https://joe:{password}@host/x",
                "engines": {
                    "simulated": records.space()
                    .engines["simulated"]
                    .model_copy(update={"env": {"WANDB_API_KEY": plain}, "flags": {"--api-key": plain}})
                },
            }
        ),
        overrides={"storage": f"postgresql://joe:{password}@host/x", "hf_token": plain},
    )
    store.create_study(study)
    store.set_state("night", StudyState.FAILED, f"Authorization: Bearer {key}")
    attempt = opened(store, owner=f"x password={plain}", run_dir=f"/runs/{token}")
    plan = records.plan(
        argv=("serve", "--api-key", plain, f"--token={plain}", f"http://u:{password}@h"),
        env={"HF_TOKEN": plain, "NOTE": token},
    )
    failure = Failure(
        FailureClass.UNKNOWN, Phase.SERVING, (f"HF_TOKEN={plain}", token), (key,), f"password: {plain}", 1
    )
    report = records.failed_report(
        outcome=failure, plan=plan, notes=(key,), versions={"x": token}, machine={"AUTH_TOKEN": plain}
    )
    store.finish_attempt(attempt.id, report)
    bad = records.level(1, 5.0)
    measured = records.measured_report()
    measured = replace(measured, outcome=replace(measured.outcome, levels=(replace(bad, errors={f"401 {token}": 1}),)))
    store.finish_attempt(opened(store, 1).id, measured)
    store.record_export(ExportRecord("night", 0, "sh", f"/x/{token}", "00", 1.0))

    stored = _everything(storage_url)
    assert "***" in stored
    assert [secret for secret in SECRETS if secret in stored] == []


def test_settings_that_merely_speak_of_tokens_are_kept(night: Store) -> None:
    plan = records.plan(
        argv=("serve", "--max-num-batched-tokens", "8192", "--tokenizer", "/models/t", "--tokenizer-mode=auto"),
        env={"SGLANG_INIT_NEW_TOKEN_RATIO": "0.7", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "4096"},
    )
    report = records.measured_report(plan=plan)
    assert night.finish_attempt(opened(night).id, report).report == report


def test_bytes_that_no_database_holds_are_replaced(night: Store) -> None:
    undecodable = b"bad \xff byte".decode(errors="surrogateescape")
    failure = Failure(FailureClass.UNKNOWN, Phase.SERVING, ("nul \x00 here", undecodable, "fine ☃ 𝄞"))
    kept = night.finish_attempt(opened(night).id, records.failed_report(outcome=failure)).report
    assert kept is not None
    assert kept.outcome.evidence == ("nul \ufffd here", "bad \ufffd byte", "fine ☃ 𝄞")


def _everything(url: str) -> str:
    """Every value of every row of tuner's tables, as text."""
    engine = create_engine(driver_url(url))
    with engine.connect() as connection:
        rows = [connection.execute(text(f"SELECT * FROM {name}")).all() for name in Base.metadata.tables]
    engine.dispose()
    return repr(rows)
