import t from 'tap'
import { bindAddress, secureBindAddress } from '../../src/config/settings.ts'

t.test('where the server listens', async (t) => {
  const table: [plain: string | undefined, secure: string | undefined, addresses: [string, string]][] = [
    [undefined, undefined, ['127.0.0.1', '127.0.0.1']],
    ['0.0.0.0', undefined, ['0.0.0.0', '0.0.0.0']],
    ['any', undefined, ['::', '::']],
    ['127.0.0.1', 'any', ['127.0.0.1', '::']],
    ['any', '', ['::', '::']],
  ]
  for (const [plain, secure, addresses] of table) {
    const get = (section: string) => (section === 'chttpd' ? plain : secure)
    t.same([bindAddress({ get }), secureBindAddress({ get })], addresses)
  }
})
