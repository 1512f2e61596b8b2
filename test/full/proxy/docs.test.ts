/** docs/proxy.md shows exactly the files that the other tests run. */
import { readFile } from 'node:fs/promises'
import t from 'tap'

const at = (path: string) => readFile(new URL(`../../../${path}`, import.meta.url), 'utf8')

t.test('the page shows the files that the tests run', async (t) => {
  const page = await at('docs/proxy.md')
  for (const path of ['nginx.conf', 'Caddyfile', 'nodes-nginx.conf', 'nodes.Caddyfile'].map(
    (name) => `deploy/${name}`,
  ))
    t.ok(page.includes(`\n${await at(path)}\`\`\``), path)
})
