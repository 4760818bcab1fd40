import type { StoryView } from "../../model/story";

/** The view of a URL; what it does not say, or says wrongly, is as at first. */
export function simulationViewOf(search: { readonly [name in keyof StoryView]?: unknown }): StoryView {
  return {
    messages: search.messages === true,
    text: typeof search.text === "string" ? search.text.slice(0, 300) : "",
  };
}
