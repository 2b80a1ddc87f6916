"""What libsalvor says, as dataclasses. `raw` has all of it, what this package does not know as well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

Key = tuple[Any, ...]


class SalvorError(Exception):
    """What went wrong, with a stable name (docs/reference/errors.md) and a way on."""

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(value.get("message", ""))
        self.code: int = value.get("code", 0)
        self.name: str = value.get("name", "failed")
        self.message: str = value.get("message", "")
        self.way_on: str = value.get("wayOn", "")
        self.reason: Optional[str] = value.get("reason")
        self.is_retryable: bool = value.get("retryable", False)
        report = value.get("report")
        #: The figures of a synchronization or recovery that failed.
        self.report: Optional[SyncReport] = None if report is None else SyncReport.of(report)
        self.raw = value

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True)
class TableChange:
    """Rows that were written or removed. Keys None: read the whole table anew."""

    table: str
    keys: Optional[tuple[Key, ...]]

    @classmethod
    def of(cls, value: dict[str, Any]) -> TableChange:
        keys = value["keys"]
        return cls(value["table"], None if keys is None else tuple(tuple(key) for key in keys))


@dataclass(frozen=True)
class Recovery:
    """A recovery that was done, or that is required."""

    reason: str
    strategy: str
    id: Optional[str] = None
    kept: int = 0
    discarded: int = 0
    lost: int = 0
    backup: Optional[str] = None
    token: Optional[str] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Recovery:
        counts = value.get("counts", value)
        return cls(
            value["reason"], value["strategy"], value.get("id"), counts.get("kept", 0), counts.get("discarded", 0),
            counts.get("lost", 0), value.get("backup"), value.get("token"), value)


@dataclass(frozen=True)
class SyncReport:
    """One synchronization. `refused` above 0: look at `Client.errors`."""

    outcome: Optional[str]
    uploaded: int = 0
    upserts: int = 0
    deletes: int = 0
    refused: int = 0
    queued: int = 0
    changes: tuple[TableChange, ...] = ()
    notices: tuple[str, ...] = ()
    recovery: Optional[Recovery] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> SyncReport:
        downloaded = value.get("downloaded", {})
        recovery = value.get("recovery")
        return cls(
            value["outcome"], value.get("uploaded", 0), downloaded.get("upserts", 0), downloaded.get("deletes", 0),
            value.get("refused", 0), value.get("queued", 0),
            tuple(TableChange.of(one) for one in value.get("changes", ())), tuple(value.get("notices", ())),
            None if recovery is None else Recovery.of(recovery), value)


@dataclass(frozen=True)
class Request:
    """One change that waits, or that is in the error archive."""

    id: str
    table: str
    key: Key
    operation: str
    state: str
    before: Optional[dict[str, Any]]
    after: Optional[dict[str, Any]]
    reason: Optional[str]
    message: Optional[str]
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Request:
        return cls(
            value["id"], value["table"], tuple(value["key"]), value["operation"], value["state"], value["before"],
            value["after"], value["reason"], value["message"], value)


@dataclass(frozen=True)
class RecoveryPlan:
    """What a recovery would do. Reason None: there is nothing to recover from."""

    reason: Optional[str]
    strategy: Optional[str]
    steps: tuple[str, ...]
    kept: int
    discarded: int
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> RecoveryPlan:
        requests = value["requests"]
        return cls(
            value["reason"], value["strategy"], tuple(value["steps"]), requests["kept"], requests["discarded"], value)


@dataclass(frozen=True)
class Status:
    """What the database says of itself."""

    remote_id: str
    principal: str
    queued: int
    in_error: int
    recovery_state: str
    recovery_token: Optional[str]
    notes: tuple[str, ...]
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Status:
        recovery = value["recovery"]
        return cls(
            value["remoteID"], value["principal"], value["queued"], value["inError"], recovery["state"],
            recovery["token"], tuple(note["text"] for note in value["notes"]), value)


@dataclass(frozen=True)
class State:
    """Where a client stands: idle, synchronizing, connected, offline, waiting-for-user, recovery-required."""

    name: str
    #: 0 to 1, where it can be told.
    share: Optional[float] = None
    rows: Optional[int] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> State:
        progress = value.get("progress") or {}
        permille = progress.get("permille")
        return cls(value["name"], None if permille is None else permille / 1000, progress.get("rows"), value)


@dataclass(frozen=True)
class Event:
    """Something that happened: `name` is the member "event" of salvor.h."""

    name: str
    changes: tuple[TableChange, ...] = ()
    report: Optional[SyncReport] = None
    state: Optional[State] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Event:
        report, state = value.get("report"), value.get("state")
        return cls(
            value["event"], tuple(TableChange.of(one) for one in value.get("changes", ())),
            None if report is None else SyncReport.of(report), None if state is None else State.of(state), value)
