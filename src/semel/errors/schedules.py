"""What is wrong with a schedule, and what cannot be done with one."""

from __future__ import annotations

from semel.errors.base import SemelError


class BadSchedule(SemelError):
    """A schedule that never comes, or says what it cannot be. Nothing of it was kept."""

    code = "E-SCHEDULE-001"
    sqlstate = "SMH01"
    exit_code = 2
    title = "impossible schedule"
    remedy = "The message names what it says and what it may say."


class NoSuchSchedule(SemelError):
    """No schedule has this name in this project."""

    code = "E-SCHEDULE-002"
    sqlstate = "SMH02"
    http_status = 404
    title = "no such schedule"
    remedy = "Check the name and the project: `semel schedule list` shows what is there."


class ScheduleRefused(SemelError):
    """Whose schedule it is does not allow this, or somebody changed it in the meantime."""

    code = "E-SCHEDULE-003"
    sqlstate = "SMH03"
    http_status = 409
    title = "not allowed for this schedule"
    remedy = "`semel schedule list` says whose it is: the code's, an operator's, or both."
