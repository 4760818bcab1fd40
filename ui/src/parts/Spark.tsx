const WIDTH = 96;
const HEIGHT = 24;
const LINE = 1.5;

/** A small line of the last values. Its label is the last one: a line alone says nothing to a screen reader. */
export function Spark({ values: given, label }: { values: readonly number[]; label: string }) {
  const values = given.filter(Number.isFinite);
  const most = Math.max(...values, 1);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, index) => {
    const y = HEIGHT - LINE - (Math.max(0, value) / most) * (HEIGHT - 2 * LINE);
    return `${(index * step).toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg className="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      {points.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}
