/** The README's commands and nothing else, in a new clone: they end with one note on two devices. */
import { execFileSync } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ROOT } from '../cli/child.ts'
import { commandsOf, fencesOf, isRun, notRun } from './fences.ts'
import { openShell } from './shell.ts'

// All that npm ci does, a compiler included, takes a minute or two.
t.setTimeout(900_000)

const START = 'npm ci && npm start'

/** What a clone of this folder would hold if all of it were committed. */
function clone(folder: string): void {
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate']
  const list = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' })
  for (const file of list.split('\0').filter(Boolean)) cpSync(join(ROOT, file), join(folder, file))
}

t.test('README.md', async (t) => {
  const rows = notRun()
  const fences = fencesOf('README.md').filter((fence) => fence.language === 'sh' && isRun(fence, rows))
  t.match(commandsOf(fences[0]!), [START], 'it begins with the start of the server')
  const shell = await openShell(t, { isClone: true })
  clone(shell.folder)
  await shell.startByCommand(START)
  let said = ''
  for (const fence of fences.slice(1)) {
    const { code, output } = await shell.run(fence.text)
    t.equal(code, 0, `README.md:${fence.line}`, { text: fence.text, output })
    said += output
  }
  t.match(said, /on the phone: +written on the laptop\non the laptop: +edited on the phone\n/)
})
