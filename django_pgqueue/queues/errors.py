"""
Errors: what a job keeps of its failed attempts and crashes, and how much of it.
"""

from __future__ import annotations

# Entries kept per job: the first failure, often the telling one, and the latest.
ERRORS_MAX = 100

# The errors of row j with room for one more entry. A NULL entry added to it with ||
# would make all of it NULL, so whoever may have none uses coalesce.
ROOM_FOR_ONE = f"""
CASE WHEN jsonb_array_length(j.errors) >= {ERRORS_MAX} THEN j.errors - 1
     ELSE j.errors END
"""
