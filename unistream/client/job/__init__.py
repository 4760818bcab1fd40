"""What a user does with a job: submit it, find it, resume it, replace it by another version, end its cluster.

Decides from which snapshot a pipeline goes on (`resume`) and when an upgrade goes back (`upgrade`). May
import: `embedded`, `remote`, `machine`, and no master. Start with `submission`.
"""
