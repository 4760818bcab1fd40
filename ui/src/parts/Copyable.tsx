import { useState } from "react";

const SHOWN_MS = 1_500;

/** An id that a click copies. */
export function Copyable({ text, shown }: { text: string; shown?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => {
        setCopied(false);
      }, SHOWN_MS);
    });
  };
  return (
    <span className="copyable">
      <code title={text}>{shown ?? text}</code>
      <button type="button" onClick={copy} aria-label={`${copied ? "Copied" : "Copy"} ${text}`}>
        {copied ? "copied" : "copy"}
      </button>
    </span>
  );
}
