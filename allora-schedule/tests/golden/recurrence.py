"""Writes recurrence.tsv: times of random recurrence rules, as python-dateutil finds them.

    python3 -m venv venv && venv/bin/pip install python-dateutil==2.9.0.post0 tzdata==2025.2
    venv/bin/python recurrence.py > recurrence.tsv

Each row has a text, an instant, and the next times after it, as the seconds since the one before. The
rules are evaluated by dateutil on a wall clock without a zone. What a zone makes of a local time is
written down here, because there allora deviates from dateutil on purpose:

- A time in a gap: dateutil has it later by the length of the gap, as RFC 5545 says. Allora has it at the
  end of the gap, from FREQ=DAILY up, and leaves it out below.
- A time that comes twice: dateutil has the first one. So has allora from DAILY up; below it has both.

The rules avoid what dateutil reads differently from RFC 5545 and allora rejects or corrects: plain and
n-th weekdays in one BYDAY (dateutil takes the days that are both; allora, by the standard, those that
are either), BYWEEKNO without BYDAY (rejected), and parts that the standard forbids for a frequency.
"""

import datetime as calendar
import random
import sys
from datetime import datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

SEED = 20260302
ROWS = 2000
TIMES = 5
ZONES = ["UTC", "Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns"]
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
UTC = timezone.utc
EPOCH = datetime(1970, 1, 1)


def some(values, most):
    return ",".join(map(str, sorted(random.sample(values, random.randint(1, min(most, len(values)))))))


def signed(most):
    return [n for n in range(-most, most + 1) if n != 0]


def random_rule(freq, start):
    parts = {"FREQ": freq}
    if random.random() < 0.6:
        largest = {"YEARLY": 4, "MONTHLY": 14, "WEEKLY": 9, "DAILY": 40}.get(freq, 100)
        parts["INTERVAL"] = str(random.randint(2, largest))
    chance = lambda likely: random.random() < likely
    if chance(0.2):
        parts["BYMONTH"] = some(range(1, 13), 5)
    if freq == "YEARLY" and chance(0.15):
        parts["BYWEEKNO"] = some(signed(53), 4)
        parts["BYDAY"] = some(DAYS, 3)
    elif freq in ("YEARLY", "HOURLY") and chance(0.12):
        parts["BYYEARDAY"] = some(signed(366), 8)
    if freq != "WEEKLY" and chance(0.25):
        parts["BYMONTHDAY"] = some(signed(31), 4)
    if "BYDAY" not in parts and chance(0.45):
        nth = freq in ("YEARLY", "MONTHLY") and chance(0.5)
        if nth:
            most = 5 if freq == "MONTHLY" or "BYMONTH" in parts else 53
            days = random.sample([f"{n}{day}" for n in signed(most) for day in DAYS], random.randint(1, 3))
            parts["BYDAY"] = ",".join(days)
        else:
            parts["BYDAY"] = some(DAYS, 4)
    if chance(0.15):
        parts["BYHOUR"] = some(range(24), 4)
    if chance(0.15):
        parts["BYMINUTE"] = some(range(60), 3)
    if chance(0.05):
        parts["BYSECOND"] = some(range(60), 2)
    by = [name for name in parts if name.startswith("BY")]
    if by and chance(0.25) and freq != "SECONDLY":
        parts["BYSETPOS"] = some(signed(4), 2)
    if chance(0.2):
        parts["WKST"] = random.choice(DAYS)
    if chance(0.15) and freq in ("YEARLY", "MONTHLY", "WEEKLY", "DAILY"):
        parts["COUNT"] = str(random.randint(1, 60))
    return parts


def instants(local, freq, zone):
    """The instants at which allora runs a local time."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    exists = first.astimezone(zone).replace(tzinfo=None) == local
    short = freq in ("HOURLY", "MINUTELY", "SECONDLY")
    if not exists:
        if short:
            return []
        low, high = second, first
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) / 2
            middle = middle.replace(microsecond=0)
            if middle.astimezone(zone).replace(tzinfo=None) > local:
                high = middle
            else:
                low = middle
        return [high]
    return [first, second] if short and first != second else [first]


def row():
    freq = random.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"])
    name = random.choice(ZONES)
    zone = ZoneInfo(name)
    # Often at night, when the clocks change.
    hour = random.choice([1, 2, 3, random.randint(0, 23)])
    day = datetime(2000, 1, 1) + timedelta(days=random.randint(0, 20 * 365))
    start = day.replace(hour=hour, minute=random.choice([0, 15, 30, random.randint(0, 59)]))
    if freq in ("DAILY", "HOURLY", "MINUTELY") and random.random() < 0.5:
        start = start.replace(month=random.choice([3, 4, 10, 11]), day=min(start.day, 28))
    parts = random_rule(freq, start)
    text = ";".join(f"{key}={value}" for key, value in parts.items())
    written = start.strftime("%Y%m%dT%H%M%S")
    limit = {"YEARLY": 20, "MONTHLY": 100, "WEEKLY": 200, "DAILY": 300}.get(freq, 300)
    days = {"DAILY": 1500, "HOURLY": 60, "MINUTELY": 4, "SECONDLY": 0.1}.get(freq, 10_000)
    horizon = min(datetime(2026, 6, 1), start + timedelta(days=days))
    # The end of dateutil's search, also where a rule has no time; the text has COUNT or no end.
    calendar.MAXYEAR = start.year + 1 if days < 100 else horizon.year
    count = int(parts.get("COUNT", limit))
    endless = ";".join(f"{key}={value}" for key, value in parts.items() if key != "COUNT")
    try:
        rule = rrulestr(f"DTSTART:{written}\nRRULE:{endless}").replace(until=horizon)
        locals = list(islice(rule, min(count, limit)))
    except ValueError:
        # Its steps never meet its hours or minutes.
        return None
    found = []
    for local in locals:
        found.extend(instants(local, freq, zone))
        if len(found) > limit:
            break
    found = sorted(set(found))
    if len(found) <= TIMES:
        return None
    # Often around a change of the clocks.
    moves = [i for i in range(1, len(found)) if found[i].astimezone(zone).utcoffset() != found[i - 1].astimezone(zone).utcoffset()]
    at = random.choice(moves) - 2 if moves and random.random() < 0.6 else random.randint(0, len(found) - TIMES - 1)
    at = max(0, min(at, len(found) - TIMES - 1))
    after = found[at] + timedelta(seconds=random.choice([0, 0, 1]))
    seconds = [int(time.timestamp()) for time in found[at + 1 : at + 1 + TIMES]]
    if seconds[0] <= after.timestamp():
        return None
    before = int(after.timestamp())
    steps = [str(second - last) for second, last in zip(seconds, [before, *seconds])]
    prefix = f"DTSTART:{written}Z" if name == "UTC" else f"DTSTART;TZID={name}:{written}"
    return f"{prefix} RRULE:{text}\t{before}\t{' '.join(steps)}"


def main():
    random.seed(SEED)
    made = 0
    while made < ROWS:
        if text := row():
            sys.stdout.write(text + "\n")
            made += 1


main()
