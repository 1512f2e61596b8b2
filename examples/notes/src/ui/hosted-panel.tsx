import { useState } from 'preact/hooks'
import type { Finding } from '../diagnosis/finding.ts'
import { signIn, signOut } from '../hosted.ts'
import { FindingCard } from './finding-card.tsx'
import { useServices, useWatched } from './services.ts'

const DIAGNOSIS_MS = 60_000

/** The account on the hosted server: signing in and out. */
export function HostedPanel() {
  const { settings, hostedServer } = useServices()
  const { account } = useWatched(settings)
  if (hostedServer === '') {
    return (
      <section class="card">
        <h2>No hosted server</h2>
        <p>
          This copy of the app was built without a hosted server (<code>VITE_HOSTED_SERVER</code>). Your notes
          stay on this device. To sync with your own server, choose Advanced.
        </p>
      </section>
    )
  }
  if (account === null || account.server !== hostedServer) return <SignIn />
  const leave = () => {
    settings.signOut()
    void signOut(account, (input, init) => fetch(input, init))
  }
  return (
    <section class="card">
      <h2>Signed in as {account.name}</h2>
      <p>
        This device uses a token of its own for {hostNameOf(hostedServer)}; your password is not stored. If
        you sign out, every note stays on this device.
      </p>
      <button type="button" class="quiet" onClick={leave}>
        Sign out
      </button>
    </section>
  )
}

function SignIn() {
  const { settings, hostedServer, diagnose, device } = useServices()
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const [isBusy, setBusy] = useState(false)
  const [fault, setFault] = useState<string | Finding | null>(null)
  const enter = async () => {
    setBusy(true)
    setFault(null)
    const result = await signIn(
      hostedServer,
      name.trim(),
      password,
      `Notes, ${device.value.name}`,
      (input, init) => fetch(input, init),
    )
    if ('account' in result) settings.signIn(result.account)
    else if ('refused' in result) setFault(result.refused)
    else {
      const { unheard } = result
      const signal = AbortSignal.timeout(DIAGNOSIS_MS)
      const found = unheard && (await diagnose(unheard, { mobile: false, isHosted: true }, signal))
      setFault(found?.finding ?? 'The server did not answer. Try again.')
    }
    setBusy(false)
  }
  return (
    <form
      class="card form"
      onSubmit={(event) => {
        event.preventDefault()
        void enter()
      }}
    >
      <h2>Sign in to {hostNameOf(hostedServer)}</h2>
      <p>Until you sign in, your notes stay on this device.</p>
      <label class="field">
        <span>Account</span>
        <input
          autocomplete="username"
          autocapitalize="off"
          spellcheck={false}
          required
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
      <label class="field">
        <span>Password</span>
        <input
          type="password"
          autocomplete="current-password"
          required
          value={password}
          onInput={(event) => setPassword(event.currentTarget.value)}
        />
      </label>
      <button type="submit" disabled={isBusy}>
        {isBusy ? 'Signing in…' : 'Sign in'}
      </button>
      {typeof fault === 'string' && (
        <p class="notice is-bad" role="alert">
          {fault}
        </p>
      )}
      {fault !== null && typeof fault === 'object' && <FindingCard finding={fault} />}
    </form>
  )
}

function hostNameOf(server: string): string {
  return server.replace(/^https?:\/\//, '').replace(/\/+$/, '')
}
