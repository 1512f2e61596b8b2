/** Runs every command of the documentation, and checks its exit code. */
import t from 'tap'
import { commandsOf, type Fence, fencesOf, isRun, notRun, PAGES } from '../../docs/fences.ts'
import { type Block, type Page, SCENES } from '../../docs/pages.ts'
import { openShell, type Shell } from '../../docs/shell.ts'

t.setTimeout(300_000)

const rows = notRun()
const COMMAND = /^(?:sudo |\$ )?(?:curl|settee|npm|npx|node|docker|systemctl|litestream|printf)\b/

t.test('blocks of commands are marked', async (t) => {
  for (const fence of PAGES.flatMap(fencesOf).filter(({ language }) => language !== 'sh')) {
    t.notOk(
      commandsOf(fence).some((line) => COMMAND.test(line)),
      `${fence.page}:${fence.line}`,
    )
  }
})

t.test('the listed blocks that do not run exist, and have a reason', async (t) => {
  for (const row of rows) {
    const fences = fencesOf(row.page).filter(({ language }) => language === 'sh')
    t.ok(
      fences.some((fence) => !isRun(fence, [row])),
      `${row.page}: ${row.words}`,
    )
    t.ok(row.reason.length > 10)
  }
})

const PLAIN_CURL = 'curl() { /usr/bin/curl --silent "$@"; }\n'

async function inOrder(
  shell: Shell,
  page: string,
  fence: Fence,
): Promise<{ code: number | null; output: string }> {
  const scene = SCENES[page]
  const [first = ''] = commandsOf(fence)
  const own = Object.entries(scene?.blocks ?? {}).find(([words]) => first.startsWith(words))
  const block: Block = own?.[1] ?? {}
  let { text } = fence
  for (const [name, here] of Object.entries((await scene?.names?.(shell)) ?? {}))
    text = text.replaceAll(name, here)
  if (block.isServer) {
    await shell.startServer(...text.trim().split(/\s+/).slice(2))
    if (!block.staysUp) await shell.stopServer()
    return { code: 0, output: '' }
  }
  if (block.isStopped) await shell.stopServer()
  await block.before?.(shell)
  const ended = await shell.run(block.hasPlainCurl ? PLAIN_CURL + text : text)
  if (block.isStopped) await shell.startServer(...(scene?.server ?? []))
  return ended
}

for (const page of PAGES.filter((page) => page !== 'README.md')) {
  const fences = fencesOf(page).filter((fence) => fence.language === 'sh' && isRun(fence, rows))
  if (fences.length === 0) continue
  t.test(page, async (t) => {
    const scene: Page = SCENES[page] ?? {
      server: null,
      before: 'echo pages.ts does not know this page; exit 1',
    }
    const shell = await openShell(t, { variables: { PASSWORD: 'secret' } })
    if (scene.server) await shell.startServer(...scene.server)
    await scene.prepare?.(shell)
    const before = await shell.run(scene.before ?? '')
    t.equal(before.code, 0, 'the preparation succeeds', { output: before.output })
    for (const fence of fences) {
      const { code, output } = await inOrder(shell, page, fence)
      t.equal(code, 0, `${page}:${fence.line}`, { text: fence.text, output })
    }
    const names = Object.entries((await scene.names?.(shell)) ?? {})
    const shown = names.reduce((text, [name, here]) => text.replaceAll(name, here), scene.after ?? '')
    const after = await shell.run(shown)
    t.equal(after.code, 0, 'the check after the command succeeds', { output: after.output })
    await shell.stopServer()
  })
}
