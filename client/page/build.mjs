// Builds dist/, or the folder that is named: build.mjs [FOLDER].
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, 'dist');

mkdirSync(folder, { recursive: true });
copyFileSync(join(here, 'src/index.html'), join(folder, 'index.html'));
buildSync({
  absWorkingDir: here,
  entryPoints: [
    { in: 'src/main.tsx', out: 'page' },
    { in: 'src/page.css', out: 'page' },
  ],
  outdir: folder,
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['chrome109', 'firefox115', 'safari16'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  logLevel: 'warning',
});
