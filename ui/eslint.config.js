import js from "@eslint/js";
import a11y from "eslint-plugin-jsx-a11y";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "node_modules", "src/api/schema.ts", "eslint.config.js"] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  a11y.flatConfigs.strict,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { "react-hooks": hooks },
    rules: {
      ...hooks.configs.recommended.rules,
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", { max: 200, skipBlankLines: true, skipComments: true }],
      "@typescript-eslint/switch-exhaustiveness-check": "error",
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
  {
    files: ["**/*.test.ts", "**/*.test.tsx"],
    rules: { "max-lines-per-function": "off" },
  },
  {
    ...tseslint.configs.disableTypeChecked,
    files: ["e2e/*.mjs"],
    languageOptions: {
      parserOptions: { projectService: false },
      globals: Object.fromEntries(
        [
          ...[
            "Blob",
            "console",
            "document",
            "fetch",
            "globalThis",
            "navigator",
            "process",
            "setTimeout",
            "URL",
          ],
          ...["cancelAnimationFrame", "MutationObserver", "performance", "PerformanceObserver"],
          "requestAnimationFrame",
        ].map((name) => [name, "readonly"]),
      ),
    },
  },
);
