import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "build/", "src/generated/"] },
  js.configs.recommended,
  {
    files: ["**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { project: "tsconfig.test.json", tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      "@typescript-eslint/no-confusing-void-expression": [
        "error",
        { ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true },
      ],
      "@typescript-eslint/non-nullable-type-assertion-style": "off", // `!` is what it would ask for
      "@typescript-eslint/restrict-template-expressions": [
        "error",
        { allowNumber: true, allowBoolean: true, allow: [{ name: "Datamarker", from: "file" }] },
      ],
      "@typescript-eslint/no-misused-spread": ["error", { allow: ["string"] }], // to count characters
      "@typescript-eslint/unbound-method": "off", // a handler is called with `call`
      "max-len": ["error", { code: 120 }],
    },
  },
  {
    files: ["test/**/*.ts"],
    // `test` and `describe` of node:test return promises that the runner awaits.
    rules: { "@typescript-eslint/no-floating-promises": "off" },
  },
);
