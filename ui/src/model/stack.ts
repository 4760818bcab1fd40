/** One call in a stack. */
export interface Frame {
  readonly file: string;
  readonly line: number;
  readonly name: string;
  /** The line of the program; "": it is not known. */
  readonly code: string;
}

const FRAME = /^\s*File "(.+)", line (\d+), in (.+)$/;
const OF_OTHERS = /(^|[/\\])(site-packages|dist-packages|unistream|lib[/\\]python3[^/\\]*)[/\\]|^</;

/** Of a Python stack those calls that are in the user's own files, in order: the last one is where it failed. */
export function userFrames(stack: string): Frame[] {
  const lines = stack.split("\n");
  return lines.flatMap((text, index) => {
    const [, file, line, name] = FRAME.exec(text) ?? [];
    if (file === undefined || name === undefined || OF_OTHERS.test(file)) return [];
    const next = lines[index + 1] ?? "";
    return [
      { file, line: Number(line), name, code: FRAME.test(next) || /^\S/.test(next) ? "" : next.trim() },
    ];
  });
}
