import { expect, test } from "vitest";

import { userFrames } from "./stack";

const STACK = `Traceback (most recent call last):
  File "/opt/app/.venv/lib/python3.12/site-packages/unistream/operator/common/rows.py", line 48, in process_batch
    take(function(row))
         ^^^^^^^^^^^^^
  File "/srv/flights/fares.py", line 12, in fare_of
    return {"fare": int(row["text"])}
                    ^^^^^^^^^^^^^^^^
  File "<string>", line 3, in made
  File "fares.py", line 3, in helper
ValueError: invalid literal for int() with base 10: 'free'`;

test.each([
  ["no stack", "", []],
  [
    "calls in libraries are left out",
    STACK,
    [
      ["/srv/flights/fares.py", 12, "fare_of", 'return {"fare": int(row["text"])}'],
      ["fares.py", 3, "helper", ""],
    ],
  ],
])("%s", (_, stack, wanted) => {
  expect(userFrames(stack).map(({ file, line, name, code }) => [file, line, name, code])).toEqual(wanted);
});
