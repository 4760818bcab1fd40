/** Which components are drawn: of what React keeps of a page, the one place that looks into it. */
interface Fiber {
  readonly elementType: unknown;
  readonly type: unknown;
  readonly child: Fiber | null;
  readonly sibling: Fiber | null;
  readonly stateNode: unknown;
}

/** Functions and remembered functions, as modules export them. */
export function drawnIn(container: Element): ReadonlySet<unknown> {
  const key = Object.keys(container).find((name) => name.startsWith("__reactContainer$"));
  if (key === undefined) throw new Error("React has drawn nothing here");
  const root = (container as unknown as Record<string, Fiber>)[key]?.stateNode as { current: Fiber };
  const found = new Set<unknown>();
  const open: (Fiber | null)[] = [root.current];
  for (let fiber = open.pop(); fiber !== undefined; fiber = open.pop()) {
    if (fiber === null) continue;
    found.add(fiber.elementType).add(fiber.type);
    open.push(fiber.sibling, fiber.child);
  }
  return found;
}
