import { useEffect, useState } from "react";

const KEY = "unistream-theme";
const CHOICES = ["system", "light", "dark"] as const;
type Choice = (typeof CHOICES)[number];

function stored(): Choice {
  return CHOICES.find((choice) => choice === localStorage.getItem(KEY)) ?? "system";
}

/** Dark, light, or what the system says; kept in this browser. */
export function ThemeChoice() {
  const [choice, setChoice] = useState(stored);
  useEffect(() => {
    document.documentElement.dataset["theme"] = choice;
    localStorage.setItem(KEY, choice);
  }, [choice]);
  return (
    <select
      aria-label="Colours"
      value={choice}
      onChange={(event) => {
        setChoice(CHOICES.find((one) => one === event.target.value) ?? "system");
      }}
    >
      {CHOICES.map((one) => (
        <option key={one}>{one}</option>
      ))}
    </select>
  );
}
