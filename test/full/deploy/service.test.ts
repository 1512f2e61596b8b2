/** deploy/settee.service, checked by systemd itself. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { ROOT, WITHOUT_LOADERS } from '../../cli/child.ts'

const UNIT = join(ROOT, 'deploy', 'settee.service')

function analyze(...args: string[]) {
  const [env, ...unset] = WITHOUT_LOADERS
  const run = spawnSync(env, [...unset, 'systemd-analyze', ...args, UNIT], { encoding: 'utf8' })
  return { status: run.status, output: run.stdout + run.stderr }
}

t.test('systemd understands every line', (t) => {
  t.strictSame(analyze('verify', '--man=no'), { status: 0, output: '' })
  t.end()
})

t.test('the service has few permissions', (t) => {
  // systemd's exposure level times ten: 100 is a service with all rights.
  const { status, output } = analyze('security', '--offline=true', '--threshold=20', '--no-pager')
  t.equal(status, 0, 'exposure', { output })
  t.end()
})
