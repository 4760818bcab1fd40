import { useNavigate } from "@tanstack/react-router";
import { type RefObject, useId, useState } from "react";

import { useOverview } from "../api/queries";
import { type Hit, hitsOf } from "../model/search";

/** Finds jobs by name, id, operator, table and topic. */
export function Search({ box }: { box: RefObject<HTMLInputElement | null> }) {
  const [text, setText] = useState("");
  const navigate = useNavigate();
  const list = useId();
  const { data } = useOverview();
  const hits = text.trim() === "" ? [] : hitsOf(data?.jobs ?? [], text);
  const open = (hit: Hit) => {
    setText("");
    box.current?.blur();
    const search = hit.vertex === undefined ? {} : { vertex: hit.vertex };
    void navigate({ to: "/jobs/$job", params: { job: hit.job }, search });
  };
  return (
    <search className="search">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const [first] = hits;
          if (first !== undefined) open(first);
        }}
      >
        <input
          ref={box}
          type="search"
          placeholder="Search  /"
          aria-label="Search jobs, operators, tables and topics"
          aria-controls={text.trim() === "" ? undefined : list}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
          }}
        />
      </form>
      {text.trim() !== "" && (
        <ul id={list} className="hits">
          {hits.map((hit) => (
            <li key={`${hit.job} ${hit.vertex ?? ""} ${hit.what}`}>
              <button
                type="button"
                onClick={() => {
                  open(hit);
                }}
              >
                <bdi>{hit.name}</bdi> <span className="quiet">{hit.what}</span>
              </button>
            </li>
          ))}
          {hits.length === 0 && <li className="quiet">Nothing has this in its name.</li>}
        </ul>
      )}
    </search>
  );
}
