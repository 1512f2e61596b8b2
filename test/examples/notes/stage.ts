/** What all cases share: one build, one browser, a self-hosted server and a hosted one. */
import type { Browser } from 'playwright-core'
import type { Test } from 'tap'
import { launchBrowser } from '../../helpers/browser.ts'
import { Device, type DeviceOptions } from './device.ts'
import { type Server, startServer } from './servers.ts'
import { buildSite, openSite } from './site.ts'

export interface Stage {
  readonly origin: string
  /** Of the built app. */
  readonly folder: string
  readonly browser: Browser
  /** With the account `anna`, whose password is her name. */
  readonly server: Server
  /** The same, in hosted mode. */
  readonly hosted: Server
  device(t: Test, options?: DeviceOptions): Promise<Device>
  /** A database of `anna`'s on the self-hosted server. @returns its address */
  database(name: string): Promise<string>
}

export async function openStage(t: Test): Promise<Stage> {
  const site = await openSite(t)
  const [server, hosted, browser] = await Promise.all([
    startServer(t, site.origin, 'single'),
    startServer(t, site.origin, 'hosted'),
    launchBrowser(t),
  ])
  await Promise.all([server.addAccount('anna'), hosted.addAccount('anna')])
  const folder = await buildSite(t, hosted.url)
  site.serve(folder)
  return {
    origin: site.origin,
    folder,
    browser,
    server,
    hosted,
    device: (test, options) => Device.open(test, browser, site.origin, options),
    database: async (name) => {
      await server.addDatabase(name, 'anna')
      return `${server.url.replace('://', '://anna:anna@')}/${name}`
    },
  }
}
