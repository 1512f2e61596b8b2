import t from 'tap'
import { Shutdown } from '../../src/server/server-context.ts'

t.test('what was begun last ends first, one after the other, and once', async (t) => {
  const closing = new Shutdown()
  const ended: string[] = []
  const step = (name: string) => async () => {
    await new Promise(setImmediate)
    ended.push(name)
  }
  for (const name of ['log', 'databases', 'app']) closing.add(step(name))
  await Promise.all([closing.close(), closing.close()])
  await closing.close()
  t.same(ended, ['app', 'databases', 'log'])
})

t.test('a step that fails keeps no other from being taken', async (t) => {
  const closing = new Shutdown()
  const ended: string[] = []
  closing.add(async () => ended.push('log'))
  closing.add(() => Promise.reject(new Error('of the databases')))
  closing.add(() => Promise.reject(new Error('of the app')))
  await t.rejects(closing.close(), { message: 'of the app' })
  await t.rejects(closing.close(), { message: 'of the app' })
  t.same(ended, ['log'])
})
