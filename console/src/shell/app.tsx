/** Decides what is shown: the way in, or the console. */
import { useEffect } from 'preact/hooks'
import { readSession, session } from '../api/session.ts'
import { isAskingAgain } from '../api/session-end.ts'
import { Button } from '../parts/button.tsx'
import { ConfirmHost } from '../parts/confirm.tsx'
import { ErrorNotice } from '../parts/notice.tsx'
import { ToastHost } from '../parts/toast.tsx'
import { FirstAdmin } from '../screens/sign-in/first-admin.tsx'
import { SignIn, SignInAgain } from '../screens/sign-in/sign-in.tsx'
import { en } from '../strings/en.ts'
import { Frame } from './frame.tsx'

export function App() {
  useEffect(() => void readSession(), [])
  return (
    <>
      <Content />
      <ToastHost />
      <ConfirmHost />
      {isAskingAgain.value && <SignInAgain />}
    </>
  )
}

function Content() {
  const state = session.value
  switch (state.kind) {
    case 'loading':
      return <main class="blank" aria-busy="true" aria-label={en.common.loading} />
    case 'unreachable':
      return (
        <main class="blank">
          <div class="doorway">
            <h1>{en.shell.unreachableTitle}</h1>
            <p>{en.shell.unreachableHelp}</p>
            <ErrorNotice failure={state.failure} />
            <Button kind="primary" icon="reload" onClick={() => void readSession()}>
              {en.common.tryAgain}
            </Button>
          </div>
        </main>
      )
    case 'open':
      return <FirstAdmin />
    case 'anonymous':
      return <SignIn />
    case 'signed in':
      return <Frame user={state.user} />
  }
}
