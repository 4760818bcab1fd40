import { createContext } from "react";

/** Around the pages of a job that its cluster does not know any more: the page says so once, at its top. */
export const Gone = createContext(false);
