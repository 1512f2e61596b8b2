import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { GRAMMARS } from '../../src/cli/commands.ts'
import { detailsOf, overview } from '../../src/cli/grammar.ts'
import { ROOT, settee } from './child.ts'

t.test('--help and --version', async (t) => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  t.strictSame(await settee(t, ['--help']).ended, { code: 0, stdout: overview(GRAMMARS), stderr: '' })
  const backup = GRAMMARS.filter(({ name }) => name === 'backup')
  t.strictSame(await settee(t, ['help', 'backup']).ended, { code: 0, stdout: detailsOf(backup), stderr: '' })
  t.strictSame(await settee(t, ['serve', '--version']).ended, {
    code: 0,
    stdout: `settee ${version}\n`,
    stderr: '',
  })
})

t.test('a mistake is one line on the standard error and exit code 1', async (t) => {
  const unknown = await settee(t, ['--bogus']).ended
  t.strictSame(unknown, {
    code: 1,
    stdout: '',
    stderr: "settee: Unknown option '--bogus'. See settee --help.\n",
  })
  const port = await settee(t, ['serve', '--port', 'abc']).ended
  t.match(port, { code: 1, stdout: '', stderr: /^settee: --port must be a whole number .*\n$/ })
  const command = await settee(t, ['start']).ended
  t.match(command, { code: 1, stdout: '', stderr: /^settee: Unknown command "start"\. .*\n$/ })
})
