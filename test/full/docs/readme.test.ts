/** Runs only the README's commands in a new clone. They end with one note on two devices. */
import { execFileSync } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ROOT } from '../../cli/child.ts'
import { commandsOf, fencesOf, isRun, notRun } from '../../docs/fences.ts'
import { openShell } from '../../docs/shell.ts'

// npm ci takes a minute or two, because it installs all dependencies, even a compiler.
t.setTimeout(900_000)

const START = 'npm ci && npm start'

/** The files of a clone of this folder, if everything were committed. */
function clone(folder: string): void {
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate']
  const list = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' })
  for (const file of list.split('\0').filter(Boolean)) cpSync(join(ROOT, file), join(folder, file))
}

/** Replaces placeholders by earlier output. */
function asTyped(text: string, said: string): string {
  const [address = ''] = /http:\/\/notes:stt_\S+\/notes/.exec(said) ?? []
  const [backup = ''] = /\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ/.exec(said) ?? []
  return text.replaceAll(/http:\/\/notes:stt_\.\.\.\S+/g, address).replaceAll('2026-11-22T01-30-00Z', backup)
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
    const { code, output } = await shell.run(asTyped(fence.text, said))
    t.equal(code, 0, `README.md:${fence.line}`, { text: fence.text, output })
    said += output
  }
  t.match(said, /on the phone: +written on the laptop\non the laptop: +edited on the phone\n/)
})
