/** Tells the server that a page of its own asks: no page of another origin can set a header of its own. */
export const OWN_PAGE_HEADER = "X-Unistream-Page";

/** Of every request. */
export const OWN_HEADERS: Readonly<Record<string, string>> = { [OWN_PAGE_HEADER]: "1" };
