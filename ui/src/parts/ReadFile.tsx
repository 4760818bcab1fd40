import { bytes } from "../format/numbers";

export const FILE_MAX = 100_000_000; // bytes

interface Props<Read> {
  readonly label: string;
  readonly read: (text: string) => Read | string;
  readonly take: (found: Read | string) => void;
}

/** A file of the user, which is read in the browser. `take` gets what it holds, or one sentence why it is refused. */
export function ReadFile<Read>({ label, read, take }: Props<Read>) {
  const open = async (file: File | undefined) => {
    if (file === undefined) return;
    take(
      file.size > FILE_MAX
        ? `The file has ${bytes(file.size)}; this page reads at most ${bytes(FILE_MAX)}.`
        : read(await file.text()),
    );
  };
  return (
    <p>
      <label>
        {label}{" "}
        <input
          type="file"
          accept=".json,application/json"
          onChange={({ target }) => void open(target.files?.[0])}
        />
      </label>{" "}
      <span className="quiet">It is read here and goes nowhere.</span>
    </p>
  );
}
