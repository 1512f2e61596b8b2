import t from 'tap'
import type { Account } from '../../src/auth/accounts.ts'
import { type CheckerOptions, CredentialChecker } from '../../src/auth/credentials.ts'

/** Counts computations; each waits until it is let go. A password is right when it equals the stored text. */
function setUp(options: CheckerOptions = {}) {
  const accounts = new Map<string, Account>([
    ['anna', { name: 'anna', stored: 'secret', roles: ['_admin'], salt: '' }],
  ])
  const waiting: (() => void)[] = []
  let computed = 0
  const verify = async (password: string, stored: string): Promise<boolean> => {
    computed += 1
    await new Promise<void>((resolve) => waiting.push(resolve))
    return password === stored
  }
  const source = { find: async (name: string) => accounts.get(name) ?? null, decoy: () => 'decoy' }
  const checker = new CredentialChecker(source, { verify, ...options })
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
  /** Lets computations end, also those that begin by it, until a promise is settled. */
  const letGo = async <T>(result: Promise<T>): Promise<T> => {
    let done = false
    const end = result.finally(() => {
      done = true
    })
    end.catch(() => undefined)
    while (!done) {
      waiting.shift()?.()
      await settled()
    }
    return end
  }
  return { accounts, checker, waiting, letGo, settled, computed: () => computed }
}
const anna = { name: 'anna', roles: ['_admin'] }

t.test('the right pair is computed once', async (t) => {
  const { checker, letGo, computed } = setUp()
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna)
  t.strictSame(await checker.check('anna', 'secret'), anna)
  t.equal(computed(), 1)
})

t.test('wrong pairs cost a computation, an unknown name too', async (t) => {
  const { checker, letGo, computed } = setUp()
  t.equal(await letGo(checker.check('anna', 'guess')), null)
  t.equal(await letGo(checker.check('nobody', 'secret')), null)
  t.equal(await letGo(checker.check('nobody', 'decoy')), null, 'an unknown name never gets in')
  t.equal(computed(), 3)
  t.equal(await checker.check('anna', 'guess'), null)
  t.equal(computed(), 3, 'the same wrong pair is refused for a while without a computation')
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna, 'which does not lock anybody out')
})

t.test('a refused pair is tried again after a while', async (t) => {
  const { checker, letGo, computed } = setUp({ refusedMs: 1 })
  await letGo(checker.check('anna', 'guess'))
  const before = performance.now()
  while (performance.now() - before < 5) await new Promise((resolve) => setImmediate(resolve))
  await letGo(checker.check('anna', 'guess'))
  t.equal(computed(), 2)
})

t.test('a changed or withdrawn password ends what is remembered', async (t) => {
  const { accounts, checker, letGo } = setUp()
  t.equal(await letGo(checker.check('anna', 'new')), null)
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna)
  accounts.set('anna', { name: 'anna', salt: '', stored: 'new', roles: ['_admin'] })
  t.equal(await letGo(checker.check('anna', 'secret')), null)
  t.strictSame(await letGo(checker.check('anna', 'new')), anna, 'at once, though it was refused a moment ago')
  accounts.delete('anna')
  t.equal(await letGo(checker.check('anna', 'new')), null)
})

t.test('equal checks at the same time share one computation, others do not', async (t) => {
  const { checker, letGo, computed } = setUp()
  const same = Promise.all([1, 2, 3].map(() => checker.check('anna', 'secret')))
  const other = checker.check('annas', 'ecret')
  t.strictSame(await letGo(same), [anna, anna, anna])
  t.equal(await letGo(other), null)
  t.equal(computed(), 2)
})

t.test('two are computed at once, some wait in order, the rest is refused', async (t) => {
  const { checker, letGo, settled, waiting, computed } = setUp({ queue: 3 })
  const ended: number[] = []
  const checks = [0, 1, 2, 3, 4].map(async (number) => {
    await checker.check('anna', `guess ${number}`)
    ended.push(number)
  })
  await settled()
  t.equal(waiting.length, 2)
  t.equal(computed(), 2)
  await t.rejects(checker.check('anna', 'one more'), {
    code: 'unavailable',
    status: 503,
    error: 'service_unavailable',
  })
  await letGo(Promise.all(checks))
  t.strictSame(ended, [0, 1, 2, 3, 4])
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna, 'and then it goes on')
})

t.test('many wrong guesses do not push out who is verified', async (t) => {
  const { checker, letGo, computed } = setUp({ remembered: 10 })
  await letGo(checker.check('anna', 'secret'))
  for (let guess = 0; guess < 50; guess++) await letGo(checker.check('anna', `${guess}`))
  const before = computed()
  t.strictSame(await checker.check('anna', 'secret'), anna)
  t.equal(computed(), before)
})

t.test('a computation that fails is nobody else’s trouble', async (t) => {
  const faults = [new Error('no memory')]
  const account = { name: 'a', stored: 's', roles: [], salt: '' }
  const source = { find: async () => account, decoy: () => 'decoy' }
  const verify = async (): Promise<boolean> => {
    const fault = faults.pop()
    if (fault) throw fault
    return true
  }
  const checker = new CredentialChecker(source, { verify, concurrency: 1, queue: 0 })
  await t.rejects(checker.check('a', 'b'), { message: 'no memory' })
  t.strictSame(await checker.check('a', 'b'), { name: 'a', roles: [] })
})
