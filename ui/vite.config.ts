import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** Where the JobManager answers while the pages come from Vite: `make ui MASTER=http://127.0.0.1:8081`. */
const master = process.env["UNISTREAM_MASTER"] ?? "http://127.0.0.1:8081";

/** Paths of the REST API; all others are pages. */
const served = ["/unistream", "/jobs", "/taskmanagers", "/overview", "/config", "/cluster"];

export default defineConfig({
  plugins: [react()],
  server: {
    proxy: Object.fromEntries(
      served.map((path) => [path, { target: master, changeOrigin: true, headers: { origin: master } }]),
    ),
  },
  build: {
    outDir: "../unistream/_ui",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    assetsInlineLimit: 0,
  },
  test: { environment: "node", globals: false, css: false },
});
