import { type SyntheticEvent, useEffect, useId, useRef, useState } from "react";

interface Props {
  readonly isAsking: boolean;
  /** Why the last one was not taken. */
  readonly wrong: string | null;
  readonly submit: (text: string) => void;
}

/** One field for a token. */
export function TokenForm({ isAsking, wrong, submit }: Props) {
  const field = useRef<HTMLInputElement>(null);
  const hint = useId();
  const why = useId();
  const [text, setText] = useState("");
  useEffect(() => {
    field.current?.focus(); // what had it, is gone
  }, []);
  const onSubmit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (!isAsking && text.trim() !== "") submit(text);
  };
  return (
    <form onSubmit={onSubmit} aria-busy={isAsking}>
      <label className="field">
        Token
        <input
          ref={field}
          type="password"
          autoComplete="off"
          spellCheck={false}
          value={text}
          aria-invalid={wrong !== null}
          aria-describedby={`${why} ${hint}`}
          onChange={({ target }) => {
            setText(target.value);
          }}
        />
      </label>
      <p id={why} className="wrong" role="alert">
        {wrong}
      </p>
      <p id={hint} className="quiet">
        It begins with <code>unistream_</code>. This tab keeps it until it is closed, or you sign out.
      </p>
      <button type="submit" className="primary" disabled={isAsking || text.trim() === ""}>
        {isAsking ? "Asking …" : "Sign in"}
      </button>
    </form>
  );
}
