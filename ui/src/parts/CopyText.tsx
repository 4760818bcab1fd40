import { useState } from "react";

const SHOWN_MS = 1_500;

/** Copies a text that is made when it is asked for. */
export function CopyText({ text, name }: { text: () => string; name: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard.writeText(text()).then(() => {
      setCopied(true);
      setTimeout(() => {
        setCopied(false);
      }, SHOWN_MS);
    });
  };
  return (
    <button type="button" onClick={copy}>
      {copied ? "copied" : `Copy as ${name}`}
    </button>
  );
}
