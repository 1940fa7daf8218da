"""What every store promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text
from support import records

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.study import AttemptRecord, AttemptState, ExportRecord, Lease, StudyState
from tuner.domain.trial import Purpose
from tuner.errors import StorageError, StudyError
from tuner.store import Store, driver_url, open_store
from tuner.store.migrate import VERSION_TABLE
from tuner.store.owner import this_process
from tuner.store.tables import Base

TTL = 30.0


class Clock:
    """Seconds since the epoch, set by the test."""

    now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(storage_url: str, clock: Clock) -> Iterator[Store]:
    with open_store(storage_url, patience_s=2, clock=clock) as opened:
        yield opened


@pytest.fixture
def night(store: Store) -> Store:
    """A store with the study `night`."""
    store.create_study(records.study())
    return store


def opened(store: Store, trial: int = 0, attempt: int = 1, **changes: object) -> AttemptRecord:
    fields = {
        "purpose": Purpose.SEARCH,
        "candidate": records.candidate(),
        "run_dir": f"/runs/night/{trial}/{attempt}",
        "owner": "box:1:2:3",
        "ttl": TTL,
    }
    return store.open_attempt("night", trial=trial, attempt=attempt, **(fields | changes))  # type: ignore[arg-type]


class TestStudies:
    def test_a_study_reads_back_as_it_was_written(self, store: Store) -> None:
        store.create_study(records.study())
        assert store.study("night") == records.study()

    def test_studies_are_listed_oldest_first(self, store: Store) -> None:
        for name in ("b", "a"):
            store.create_study(records.study(name))
        assert [study.name for study in store.studies()] == ["b", "a"]

    def test_a_taken_name_is_refused_and_the_first_study_stays(self, night: Store) -> None:
        with pytest.raises(StudyError, match="there is a study night already"):
            night.create_study(records.study(created_at=2.0))
        assert night.study("night") == records.study()

    def test_creating_the_same_study_again_after_a_lost_commit_is_no_error(self, night: Store) -> None:
        night.create_study(records.study())
        assert len(night.studies()) == 1

    @pytest.mark.parametrize(
        "call",
        [
            lambda s: s.study("x"),
            lambda s: s.attempts("x"),
            lambda s: s.set_state("x", StudyState.FINISHED),
            lambda s: s.request_stop("x"),
            lambda s: s.stop_requested("x"),
            lambda s: s.delete_study("x"),
            lambda s: s.acquire_coordinator("x", "me", 1),
            lambda s: s.coordinator("x"),
            lambda s: s.exports("x"),
        ],
    )
    def test_an_unknown_study_is_named_in_the_error(self, night: Store, call) -> None:
        with pytest.raises(StudyError, match="there is no study x"):
            call(night)

    def test_state_and_reason_are_kept(self, night: Store) -> None:
        night.set_state("night", StudyState.STOPPED, "the user stopped it")
        kept = night.study("night")
        assert (kept.state, kept.reason) == (StudyState.STOPPED, "the user stopped it")

    def test_a_stop_request_lasts_until_the_study_runs_again(self, night: Store) -> None:
        assert not night.stop_requested("night")
        night.request_stop("night")
        night.set_state("night", StudyState.STOPPED)
        assert night.stop_requested("night")
        night.set_state("night", StudyState.RUNNING)
        assert not night.stop_requested("night")

    def test_deleting_a_study_leaves_no_row_behind(self, night: Store, storage_url: str) -> None:
        night.finish_attempt(opened(night).id, records.measured_report())
        night.record_export(ExportRecord("night", 0, "sh", "serve.sh", "00", 1.0))
        night.delete_study("night")
        engine = create_engine(driver_url(storage_url))
        with engine.connect() as connection:
            counts = {
                name: connection.scalar(text(f"SELECT count(*) FROM {name}")) for name in sorted(Base.metadata.tables)
            }
        engine.dispose()
        assert counts == dict.fromkeys(counts, 0)
        assert len(counts) == 6

    def test_a_running_study_is_not_deleted(self, night: Store) -> None:
        night.acquire_coordinator("night", "elsewhere:1:2:3", TTL)
        with pytest.raises(StudyError, match="is being run by elsewhere:1:2:3"):
            night.delete_study("night")


class TestCoordinatorLease:
    def test_only_one_coordinator_runs_a_study(self, night: Store) -> None:
        night.acquire_coordinator("night", "a:1:2:3", TTL)
        with pytest.raises(StudyError, match="study night is being run by a:1:2:3"):
            night.acquire_coordinator("night", "b:1:2:3", TTL)

    def test_the_holder_prolongs_its_lease(self, night: Store, clock: Clock) -> None:
        night.acquire_coordinator("night", "a:1:2:3", TTL)
        clock.now += TTL - 1
        assert night.acquire_coordinator("night", "a:1:2:3", TTL) == Lease("a:1:2:3", clock.now + TTL)
        clock.now += TTL - 1
        assert night.coordinator("night") == Lease("a:1:2:3", clock.now + 1)

    def test_a_lease_that_ran_out_passes_on(self, night: Store, clock: Clock) -> None:
        night.acquire_coordinator("night", "a:1:2:3", TTL)
        clock.now += TTL
        assert night.coordinator("night") is None
        night.acquire_coordinator("night", "b:1:2:3", TTL)
        with pytest.raises(StudyError, match="b:1:2:3"):
            night.acquire_coordinator("night", "a:1:2:3", TTL)

    def test_the_lease_of_a_killed_process_of_this_machine_passes_on_at_once(self, night: Store) -> None:
        program = (
            "import time; from tuner.store.owner import this_process; print(this_process(), flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            owner = victim.stdout.readline().strip()
            night.acquire_coordinator("night", owner, 10_000)
            with pytest.raises(StudyError, match="is being run by"):
                night.acquire_coordinator("night", this_process(), TTL)
            victim.kill()
            victim.wait()
            night.acquire_coordinator("night", this_process(), TTL)

    def test_only_the_holder_can_give_the_lease_back(self, night: Store) -> None:
        night.acquire_coordinator("night", "a:1:2:3", TTL)
        night.release_coordinator("night", "b:1:2:3")
        assert night.coordinator("night") is not None
        night.release_coordinator("night", "a:1:2:3")
        assert night.coordinator("night") is None

    def test_of_coordinators_that_ask_at_the_same_moment_one_wins(self, storage_url: str, night: Store) -> None:
        barrier, won = threading.Barrier(4), []

        def ask(owner: str) -> None:
            with open_store(storage_url) as own:
                barrier.wait()
                try:
                    own.acquire_coordinator("night", owner, TTL)
                except StudyError:
                    return
                won.append(owner)

        threads = [threading.Thread(target=ask, args=(f"box{i}:1:2:3",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


class TestAttempts:
    def test_an_open_attempt_is_recorded_with_its_lease(self, night: Store, clock: Clock) -> None:
        attempt = opened(night, trial=3, attempt=2, purpose=Purpose.BASELINE)
        assert night.attempts("night") == [attempt]
        assert attempt == AttemptRecord(
            id=attempt.id,
            study="night",
            trial=3,
            attempt=2,
            purpose=Purpose.BASELINE,
            candidate=records.candidate(),
            state=AttemptState.RUNNING,
            run_dir="/runs/night/3/2",
            lease_owner="box:1:2:3",
            lease_expires_at=clock.now + TTL,
            started_at=clock.now,
        )

    def test_candidates_keep_their_values_types_and_fingerprint(self, night: Store) -> None:
        wanted = records.candidate(a=True, b=1, c=1.0, d="1", e=None, f="on", g=0.1 + 0.2)
        kept = opened(night, candidate=wanted).candidate
        assert kept.fingerprint == wanted.fingerprint
        assert [(type(v), v) for v in kept.values.values()] == [(type(v), v) for v in wanted.values.values()]

    def test_an_attempt_is_opened_once(self, night: Store, clock: Clock) -> None:
        first = opened(night)
        assert opened(night) == first  # the same call again, after a lost commit
        clock.now += 1
        with pytest.raises(StudyError, match="attempt 1 of trial 0 of study night was opened before"):
            opened(night)

    @pytest.mark.parametrize(
        "report",
        [
            records.measured_report(),
            records.failed_report(),
            records.failed_report(plan=records.plan(), artifacts={"server_log": "server.log"}),
            records.failed_report(outcome=Failure(FailureClass.UNKNOWN, Phase.SERVING)),
        ],
        ids=["measured", "failed early", "failed late", "failed bare"],
    )
    def test_a_report_reads_back_as_it_was_written(self, night: Store, clock: Clock, report) -> None:
        attempt = opened(night)
        clock.now += 60
        finished = night.finish_attempt(attempt.id, report)
        assert finished.report == report
        assert finished.finished_at == clock.now
        assert finished.state is (AttemptState.FAILED if isinstance(report.outcome, Failure) else AttemptState.MEASURED)
        assert night.attempts("night") == [finished]

    def test_phases_and_knobs_keep_their_order(self, night: Store) -> None:
        kept = night.finish_attempt(opened(night).id, records.measured_report()).report
        assert kept is not None
        assert list(kept.phase_seconds) == [Phase.SPAWN, Phase.SERVING]
        assert kept.plan is not None
        assert list(kept.plan.env) == ["NCCL_PROTO", "EMPTY"]

    def test_the_first_report_of_an_attempt_counts(self, night: Store) -> None:
        attempt = opened(night)
        first = night.finish_attempt(attempt.id, records.measured_report())
        assert night.finish_attempt(attempt.id, records.failed_report()) == first

    def test_a_report_for_an_abandoned_attempt_changes_nothing(self, night: Store) -> None:
        attempt = opened(night)
        night.abandon(attempt.id)
        late = night.finish_attempt(attempt.id, records.measured_report())
        assert (late.state, late.report) == (AttemptState.ABANDONED, None)

    def test_a_finished_attempt_cannot_be_abandoned(self, night: Store) -> None:
        attempt = opened(night)
        finished = night.finish_attempt(attempt.id, records.measured_report())
        night.abandon(attempt.id)
        assert night.attempts("night") == [finished]

    def test_a_report_for_a_deleted_study_is_a_clear_error(self, night: Store) -> None:
        attempt = opened(night)
        night.delete_study("night")
        with pytest.raises(StudyError, match=f"no attempt {attempt.id}"):
            night.finish_attempt(attempt.id, records.measured_report())

    def test_untold_attempts_are_those_with_an_outcome_that_the_sampler_has_not_heard(self, night: Store) -> None:
        measured, failed, lost, told, _running = (opened(night, trial) for trial in range(5))
        night.finish_attempt(measured.id, records.measured_report())
        night.finish_attempt(failed.id, records.failed_report())
        night.abandon(lost.id)
        night.finish_attempt(told.id, records.measured_report())
        night.mark_told(told.id)
        assert [a.trial for a in night.untold("night")] == [measured.trial, failed.trial]
        assert [a.told for a in night.attempts("night")] == [False, False, False, True, False]

    def test_a_heartbeat_keeps_an_attempt_from_expiring(self, night: Store, clock: Clock) -> None:
        beating, silent = opened(night, 0), opened(night, 1)
        clock.now += TTL / 2
        assert night.heartbeat(beating.id, TTL)
        clock.now += TTL / 2
        assert [a.id for a in night.expired("night", clock.now)] == [silent.id]

    def test_a_heartbeat_says_when_the_attempt_was_given_up(self, night: Store) -> None:
        attempt = opened(night)
        night.abandon(attempt.id)
        assert not night.heartbeat(attempt.id, TTL)
        assert night.expired("night", 1e12) == []

    def test_the_attempt_of_a_gone_process_of_this_machine_is_expired_at_once(self, night: Store) -> None:
        program = "from tuner.store.owner import this_process; print(this_process())"
        owner = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        gone, mine = opened(night, 0, owner=owner), opened(night, 1, owner=this_process())
        assert [a.id for a in night.expired("night")] == [gone.id]
        assert mine.lease_owner == this_process()

    def test_attempts_are_selected_by_purpose_state_and_trial(self, night: Store) -> None:
        base = opened(night, 0, purpose=Purpose.BASELINE)
        night.finish_attempt(base.id, records.measured_report())
        retry = [opened(night, 1, attempt) for attempt in (1, 2)]
        assert [a.id for a in night.attempts("night", purpose=Purpose.BASELINE)] == [base.id]
        assert [a.id for a in night.attempts("night", state=AttemptState.RUNNING)] == [a.id for a in retry]
        assert [a.attempt for a in night.attempts("night", trial=1)] == [1, 2]


class TestFiles:
    def test_artifacts_carry_hash_and_size_of_what_was_there(self, night: Store, tmp_path: Path) -> None:
        (tmp_path / "server.log").write_bytes(b"ready\n")
        attempt = opened(night, run_dir=str(tmp_path))
        night.finish_attempt(attempt.id, records.measured_report())
        log, script = night.artifacts(attempt.id)
        assert (log.kind, log.path, log.size_bytes) == ("server_log", "server.log", 6)
        assert log.sha256 == hashlib.sha256(b"ready\n").hexdigest()
        assert (script.kind, script.sha256, script.size_bytes) == ("launch_script", None, None)

    def test_exports_are_remembered_once(self, night: Store) -> None:
        export = ExportRecord("night", 7, "sh", "serve.sh", "ff" * 32, 12.5)
        night.record_export(export)
        night.record_export(export)
        night.record_export(replace(export, created_at=13.5))
        assert night.exports("night") == [export, replace(export, created_at=13.5)]


SECRETS = ("hf_abcdefghijklmnopqrstuvwx", "sk-abcdefghijklmnopqrstuvwx", "Sesame1!", "hunter2pass")


class TestSecrets:
    def test_no_secret_reaches_any_column(self, store: Store, storage_url: str) -> None:
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
        measured = replace(
            measured, outcome=replace(measured.outcome, levels=(replace(bad, errors={f"401 {token}": 1}),))
        )
        store.finish_attempt(opened(store, 1).id, measured)
        store.record_export(ExportRecord("night", 0, "sh", f"/x/{token}", "00", 1.0))

        stored = _everything(storage_url)
        assert "***" in stored
        assert [secret for secret in SECRETS if secret in stored] == []

    def test_settings_that_merely_speak_of_tokens_are_kept(self, night: Store) -> None:
        plan = records.plan(
            argv=("serve", "--max-num-batched-tokens", "8192", "--tokenizer", "/models/t", "--tokenizer-mode=auto"),
            env={"SGLANG_INIT_NEW_TOKEN_RATIO": "0.7", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "4096"},
        )
        report = records.measured_report(plan=plan)
        assert night.finish_attempt(opened(night).id, report).report == report

    def test_bytes_that_no_database_holds_are_replaced(self, night: Store) -> None:
        undecodable = b"bad \xff byte".decode(errors="surrogateescape")
        failure = Failure(FailureClass.UNKNOWN, Phase.SERVING, ("nul \x00 here", undecodable, "fine ☃ 𝄞"))
        kept = night.finish_attempt(opened(night).id, records.failed_report(outcome=failure)).report
        assert kept is not None
        assert kept.outcome.evidence == ("nul \ufffd here", "bad \ufffd byte", "fine ☃ 𝄞")


class TestSharingWithOptuna:
    @pytest.mark.parametrize("first", ["tuner", "optuna"])
    def test_both_create_their_tables_in_one_database_in_any_order(self, storage_url: str, first: str) -> None:
        def ours() -> None:
            with open_store(storage_url) as store:
                store.create_study(records.study())

        def theirs() -> None:
            storage = optuna.storages.RDBStorage(driver_url(storage_url))
            study = optuna.create_study(study_name="night", storage=storage, directions=["maximize"])
            study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 1.0)
            storage.remove_session()
            storage.engine.dispose()

        for make in (ours, theirs) if first == "tuner" else (theirs, ours):
            make()
        storage = optuna.storages.RDBStorage(driver_url(storage_url))
        assert optuna.load_study(study_name="night", storage=storage).best_value == 1.0
        storage.engine.dispose()
        with open_store(storage_url, create=False) as store:
            assert store.study("night") == records.study()


class TestSchema:
    def test_the_migrated_schema_is_the_one_that_the_tables_describe(self, store: Store, storage_url: str) -> None:
        engine = create_engine(driver_url(storage_url))
        with engine.connect() as connection:
            options = {"version_table": VERSION_TABLE, "compare_type": True}
            differences = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
        engine.dispose()
        assert differences == []

    def test_every_table_is_tuners_by_name(self, store: Store, storage_url: str) -> None:
        engine = create_engine(driver_url(storage_url))
        names = inspect(engine).get_table_names()
        engine.dispose()
        assert [name for name in names if not name.startswith("tuner_")] == []

    def test_opening_again_keeps_what_is_there(self, storage_url: str, night: Store) -> None:
        with open_store(storage_url) as again:
            assert again.study("night") == records.study()

    def test_processes_that_make_the_schema_at_the_same_moment_agree(self, storage_url: str) -> None:
        program = "import sys; from tuner.store import open_store; open_store(sys.argv[1]).studies()"
        command = [sys.executable, "-c", program, storage_url]
        racers = [subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE) for _ in range(3)]
        assert [(r.communicate()[1], r.returncode) for r in racers] == [(b"", 0)] * 3

    def test_a_newer_schema_is_refused_and_left_alone(self, night: Store, storage_url: str) -> None:
        engine = create_engine(driver_url(storage_url))
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(StorageError, match=r"was written by a newer tuner \(schema 9999") as caught:
            open_store(storage_url)
        assert "update tuner" in str(caught.value.hint)
        with engine.connect() as connection:
            assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == "9999"
        engine.dispose()

    def test_reading_a_database_without_studies_makes_no_tables(self, storage_url: str) -> None:
        if storage_url.startswith("sqlite"):
            Path(storage_url.removeprefix("sqlite:///")).touch()
        with pytest.raises(StorageError, match="holds no tuner study"):
            open_store(storage_url, create=False)
        engine = create_engine(driver_url(storage_url))
        assert inspect(engine).get_table_names() == []
        engine.dispose()


def _everything(url: str) -> str:
    """Every value of every row of tuner's tables, as text."""
    engine = create_engine(driver_url(url))
    with engine.connect() as connection:
        rows = [connection.execute(text(f"SELECT * FROM {name}")).all() for name in Base.metadata.tables]
    engine.dispose()
    return repr(rows)
