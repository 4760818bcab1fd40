import { memo } from "react";

import { fewer } from "../model/rates";

const WIDTH = 96;
const HEIGHT = 24;
const LINE = 1.5;
/** Two pixels each: what is nearer to each other is one to the eye. */
const POINTS = WIDTH / 2;

/** A small line of the last values. Its label is the last one: a line alone says nothing to a screen reader. */
export const Spark = memo(function Spark({ values, label }: { values: readonly number[]; label: string }) {
  return (
    <svg className="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <Line values={values} />
    </svg>
  );
});

function Line({ values: given }: { values: readonly number[] }) {
  const values = fewer(given.filter(Number.isFinite), POINTS);
  if (values.length < 2) return null;
  const most = Math.max(...values, 1);
  const step = WIDTH / (values.length - 1);
  const points = values.map((value, index) => {
    const y = HEIGHT - LINE - (Math.max(0, value) / most) * (HEIGHT - 2 * LINE);
    return `${round(index * step)},${round(y)}`;
  });
  return <polyline points={points.join(" ")} />;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
