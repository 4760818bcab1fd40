"""One pipeline, one result: in every runtime mode, on every engine, at every parallelism, whatever fails.

Hypothesis draws a pipeline and its rows. Each engine has to give the rows that plain Python gives, as a
multiset.

    pipelines       descriptions: frozen data that prints as the program which it stands for
    plain           the functions of a row that programs and model call: no unistream code
    functions       what programs import besides: sources, sinks, functions with state and timers
    model           what plain Python gives; `test_model` holds it against tables by hand
    strategies      draws pipelines and rows
    build           executes the printed program, so that what one reads is what has run
    run             the engines, and `assert_equal`
    operators       a small pipeline for each kind of operator
    dimensions      operator × barriers aligned, unaligned, at least once, or BATCH × parallelism kept,
                    changed or narrowed × backend × parallelism; rows in which each two of them meet
    test_equality   the property: simulated cluster (also under faults), workers, Spark
    planted         bugs that `test_planted` plants, each of which the property has to find

**What makes a result one.** Rows differ from run to run in the order in which they come, so the result of a
program must not depend on that:

- no row is late: the bound of a watermark strategy is the disorder that the rows of a source have;
- a function with state sorts what it keeps, by time and then by all columns, before the order counts;
- it does not depend on a timer that fires between two rows of a key, which BATCH never does
  (docs/guide/runtime-modes.md);
- sums of floats are exact (`plain.quarters`); of -0.0 and 0.0, either of which may be the least of both, it
  makes 0.0;
- it makes few of equal rows of a join's table, which it multiplies.

In AT_LEAST_ONCE mode rows may come twice when something fails: what they become in windows and in functions
with state is not compared then.

Everything else is compared as it is: -0.0 is not 0.0, NaN is NaN, null is neither NaN nor "" nor 0.

**When it fails** the message has the rows that are missing or too many, and the smallest program that
hypothesis has found. Save it as a file and run it from the root of the repository, or paste its statements
into a test.

`make test` takes the same few examples every time, and rows in which each two values of `dimensions` meet;
`make equality-nightly` draws new ones, in each round more than twenty times as many. What is not drawn stands
in `strategies.excluded`, with why.
"""
