/**
 * `npm run site [-- FOLDER]`: writes the docs as a static site with a search, into
 * `site/` if no folder is given. The site can be read from the folder (open index.html),
 * or from any path on any web server. The order of the pages is that of docs/README.md.
 */
import { join, resolve } from 'node:path';
import { buildSite } from './site/build.ts';
import { ROOT } from './steps.ts';

const folder = resolve(process.argv[2] ?? join(ROOT, 'site'));
const pages = await buildSite(folder);
process.stdout.write(
  `${pages} pages; open ${join(folder, 'index.html')} in a browser\n`,
);
