import { useEffect, useRef, useState } from 'preact/hooks'
import { serverAddress } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { signIn, signInAgain, user } from '../../api/session.ts'
import { answerRenewal } from '../../api/session-end.ts'
import { Brand } from '../../parts/brand.tsx'
import { Button } from '../../parts/button.tsx'
import { Dialog } from '../../parts/dialog.tsx'
import { PasswordField, TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'

/** The way in for people with an account. */
export function SignIn() {
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const { isBusy, failure, fault, submit } = useSignIn(() => signIn(name, password))
  const form = useRef<HTMLFormElement>(null)
  useEffect(() => {
    document.title = en.shell.windowTitle(en.signIn.title)
    form.current?.querySelector('input')?.focus()
  }, [])
  return (
    <main class="blank">
      <form
        class="doorway"
        ref={form}
        onSubmit={(event) => {
          event.preventDefault()
          submit(name !== '' && password !== '')
        }}
      >
        <Brand />
        <h1>{en.signIn.title}</h1>
        <p class="lead">{en.signIn.lead(new URL(serverAddress()).host)}</p>
        <TextField label={en.signIn.name} value={name} onChange={setName} autocomplete="username" isCode />
        <PasswordField label={en.common.password} value={password} onChange={setPassword} error={fault} />
        {failure !== null && <ErrorNotice failure={failure} />}
        <Button kind="primary" type="submit" isBusy={isBusy}>
          {en.signIn.submit}
        </Button>
        {isPlain() && <Notice tone="warn">{en.signIn.plainHttp}</Notice>}
        <p class="fine">{en.signIn.help}</p>
      </form>
    </main>
  )
}

function isPlain(): boolean {
  return location.protocol === 'http:' && !/^(?:localhost|127\.|\[::1\])/.test(location.hostname)
}

/** Over the page, when the session has ended. The same user signs in, since the page shows what is theirs. */
export function SignInAgain() {
  const name = user.value?.name ?? ''
  const [password, setPassword] = useState('')
  const { isBusy, failure, fault, submit } = useSignIn(() => signInAgain(name, password))
  const footer = (
    <>
      <Button onClick={() => answerRenewal(false)}>{en.signIn.other}</Button>
      <Button kind="primary" type="submit" isBusy={isBusy}>
        {en.signIn.submit}
      </Button>
    </>
  )
  return (
    <Dialog title={en.signIn.again} footer={footer} onSubmit={() => submit(password !== '')}>
      <p>{en.signIn.againLead}</p>
      <TextField
        label={en.signIn.name}
        value={name}
        onChange={() => undefined}
        autocomplete="username"
        disabled
      />
      <PasswordField label={en.common.password} value={password} onChange={setPassword} error={fault} />
      {failure !== null && <ErrorNotice failure={failure} />}
    </Dialog>
  )
}

function useSignIn(run: () => Promise<void>) {
  const [isBusy, setBusy] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [fault, setFault] = useState<string | null>(null)
  const submit = (isComplete: boolean) => {
    setFailure(null)
    setFault(isComplete ? null : en.signIn.needBoth)
    if (!isComplete || isBusy) return
    setBusy(true)
    run().catch((error: unknown) => {
      const next = asFailure(error)
      if (next.status === 401) setFault(en.signIn.wrong)
      else setFailure(next)
      setBusy(false)
    })
  }
  return { isBusy, failure, fault, submit }
}
