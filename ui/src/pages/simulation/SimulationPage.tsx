import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";

import { count } from "../../format/numbers";
import { type Story, type StoryView, pictureOf, storyOf } from "../../model/story";
import { Copyable } from "../../parts/Copyable";
import { Filter } from "../../parts/Filter";
import { Notice } from "../../parts/Notice";
import { ReadFile } from "../../parts/ReadFile";
import { StoryPicture } from "./StoryPicture";
import "./simulation.css";

/** The story of a simulated run that lost or doubled rows: who did what, when, and what was lost on the way. */
export function SimulationPage() {
  const [read, setRead] = useState<Story | string | null>(null);
  return (
    <>
      <h1>Simulation</h1>
      <ReadFile label="Story of a run" read={storyOf} take={setRead} />
      {read === null && <HowTo />}
      {typeof read === "string" && <Notice tone="bad">{read}</Notice>}
      {read !== null && typeof read !== "string" && <ShownStory story={read} />}
    </>
  );
}

function HowTo() {
  return (
    <div className="empty">
      <p>
        A simulation runs a pipeline under faults, seed by seed, and writes the story of the first run whose
        rows are wrong:
      </p>
      <Copyable text="unistream simulate MODULE:FUNCTION --seeds 0:200 --story-file story.json" />
    </div>
  );
}

function ShownStory({ story }: { story: Story }) {
  const view = useSearch({ from: "/simulation" });
  const navigate = useNavigate({ from: "/simulation" });
  const change = (changes: Partial<StoryView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  const picture = pictureOf(story, view);
  return (
    <>
      <h2>
        <bdi>{story.title}</bdi>
      </h2>
      {story.reason === "" ? (
        <p className="quiet">Nothing was wrong in this run.</p>
      ) : (
        <pre
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
          tabIndex={0}
        >
          {story.reason}
        </pre>
      )}
      {story.faults !== "" && <p className="quiet">Faults: {story.faults}</p>}
      <div className="story-filters">
        <Filter
          label="Lines with"
          text={view.text}
          change={(text) => {
            change({ text });
          }}
        />
        <label>
          <input
            type="checkbox"
            checked={view.messages}
            onChange={({ target }) => {
              change({ messages: target.checked });
            }}
          />{" "}
          also messages that arrived
        </label>
        <span className="quiet">
          {count(picture.rows.length)} of {count(story.lines.length)} lines
        </span>
      </div>
      <StoryPicture picture={picture} />
    </>
  );
}
