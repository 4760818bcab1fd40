/** `npm run stories`: every story, one at a time; its address says which. Not part of what is built. */
import "../src/tokens.css";
import "../src/base.css";
import "../src/parts/parts.css";

import { StrictMode, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";

import { ACCESS } from "./access";
import { SUBMIT } from "./submit";
import { DIALOGS_AND_FILES } from "./dialogs";
import { PAGES } from "./pages";
import { PARTS } from "./parts";
import { type Story, answering } from "./story";
import { TABS_AND_PAGES } from "./tabs";

const ALL = new Map(
  [...PARTS, ...PAGES, ...TABS_AND_PAGES, ...DIALOGS_AND_FILES, ...ACCESS, ...SUBMIT].map((story) => [
    `${story.group}: ${story.name}`,
    story,
  ]),
);

function onHash(changed: () => void): () => void {
  addEventListener("hashchange", changed);
  return () => {
    removeEventListener("hashchange", changed);
  };
}

function Stories() {
  const chosen = decodeURIComponent(useSyncExternalStore(onHash, () => location.hash.slice(1)));
  const story = ALL.get(chosen);
  return (
    <>
      <label className="filter">
        Story{" "}
        <select
          value={chosen}
          onChange={({ target }) => {
            location.hash = encodeURIComponent(target.value);
          }}
        >
          <option value="">choose one</option>
          {[...ALL.keys()].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {story !== undefined && <Shown key={chosen} story={story} />}
    </>
  );
}

function Shown({ story }: { story: Story }) {
  globalThis.fetch = answering(story.answers);
  return story.show();
}

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no element #root");
createRoot(root).render(
  <StrictMode>
    <Stories />
  </StrictMode>,
);
