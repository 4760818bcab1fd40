import { useEffect, useState } from "react";

const TYPED_MS = 250;

interface Props {
  readonly label: string;
  readonly text: string;
  readonly change: (text: string) => void;
}

/** A field that filters what stands below it, as soon as nobody types for a moment. */
export function Filter({ label, text, change }: Props) {
  const [typed, setTyped] = useState(text);
  const [seen, setSeen] = useState(text);
  if (seen !== text) {
    setSeen(text); // the URL has changed by itself: a link, or a step back
    setTyped(text);
  }
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => {
      change(typed);
    }, TYPED_MS);
    return () => {
      clearTimeout(timer);
    };
  });
  return (
    <label className="filter">
      <span>{label}</span>
      <input
        type="search"
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
        }}
      />
    </label>
  );
}
