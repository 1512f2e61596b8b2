/** Starts the app. */
import PouchDB from 'pouchdb-browser'
import { render } from 'preact'
import type { Address } from '../../../src/core/address.ts'
import { browserName, ThisDevice } from './device.ts'
import type { Diagnosis } from './diagnosis/finding.ts'
import { type ProbeOptions, probe } from './diagnosis/probes.ts'
import { verdict } from './diagnosis/verdict.ts'
import { SyncLog } from './log.ts'
import { Library } from './notes/library.ts'
import { SETTINGS_KEY, type Settings, SettingsKeeper } from './settings.ts'
import './style/app.css'
import { Refusals } from './sync/refusals.ts'
import { Syncer } from './sync/syncer.ts'
import { choiceOf } from './sync/target.ts'
import { App } from './ui/app.tsx'
import { type Services, ServicesContext } from './ui/services.ts'
import { loadTextEditor } from './ui/text-editor.tsx'
import { Toasts } from './ui/toasts.ts'

const send: typeof fetch = (input, init) => fetch(input, init)

async function diagnose(
  address: Address,
  { isHosted, ...options }: ProbeOptions & { readonly isHosted: boolean },
  signal: AbortSignal,
): Promise<Diagnosis> {
  const around = { send, isOnline: navigator.onLine, origin: location.origin, signal }
  return verdict(address, await probe(address, around, options), isHosted)
}

function makeServices(): Services {
  const settings = new SettingsKeeper(localStorage)
  const log = new SyncLog(localStorage, settings.value.isLogging)
  const refusals = new Refusals(localStorage)
  const library = new Library(new PouchDB('notes', { auto_compaction: true }))
  const syncer = new Syncer({
    local: library.db,
    open: (url, options) => new PouchDB(url, options),
    send,
    refusals,
    note: (event) => log.note(event),
    diagnose: ({ mode, address, mobile }, signal) =>
      diagnose(address, { mobile: mobile === 'filter', feed: false, isHosted: mode === 'hosted' }, signal),
  })
  return {
    library,
    settings,
    syncer,
    refusals,
    log,
    device: new ThisDevice(localStorage, browserName(navigator.userAgent)),
    toasts: new Toasts(),
    hostedServer: import.meta.env.VITE_HOSTED_SERVER ?? '',
    diagnose: (address, options, signal) => diagnose(address, { ...options, feed: true }, signal),
  }
}

/** The settings on which a sync depends. */
function textOfSync({ mode, address, isMobile, account, isModeChosen }: Settings): string {
  return JSON.stringify([mode, address, isMobile, account, isModeChosen])
}

/** The sync follows the settings. */
function connect({ settings, syncer, log, hostedServer }: Services): void {
  const choose = () => syncer.choose(choiceOf(settings.value, hostedServer))
  let last = settings.value
  settings.subscribe((next) => {
    const isSame = textOfSync(next) === textOfSync(last)
    last = next
    log.turn(next.isLogging)
    if (!isSame) choose()
  })
  // A setting holds for all windows of the app.
  addEventListener('storage', ({ key }) => {
    if (key === SETTINGS_KEY || key === null) settings.reread()
  })
  addEventListener('online', () => {
    if (syncer.isHeldUp) syncer.again()
  })
  addEventListener('pagehide', () => log.write())
  choose()
}

async function start(): Promise<void> {
  const root = document.getElementById('app')
  if (root === null) return
  try {
    const services = makeServices()
    render(
      <ServicesContext.Provider value={services}>
        <App />
      </ServicesContext.Provider>,
      root,
    )
    await services.library.open()
    connect(services)
    loadEditorAhead()
  } catch (error) {
    render(<Unable reason={(error as Error).message} />, root)
  }
}

/** Once the page has nothing else to do, so that the user can write even if the network is gone by then. */
function loadEditorAhead(): void {
  const load = () => void loadTextEditor().catch(() => undefined)
  if ('requestIdleCallback' in globalThis) requestIdleCallback(load, { timeout: 10_000 })
  else setTimeout(load, 2000)
}

/** Some browsers refuse to store anything in private windows. */
function Unable({ reason }: { readonly reason: string }) {
  return (
    <main class="blank">
      <p role="alert">This browser does not let the page keep notes: {reason || 'the reason is not known'}</p>
    </main>
  )
}

void start()
