/** Starts the console. */
import { render } from 'preact'
import { App } from './shell/app.tsx'
import { route } from './shell/route.ts'
import { SCREENS } from './shell/screens.ts'
import './style/console.css'

// The first screen is loaded while the server says who the user is. A failure is shown when the screen is opened.
const first = SCREENS.find(({ name }) => name === (route.value.path[0] ?? 'overview'))
first?.load().catch(() => undefined)

const root = document.getElementById('app')
if (root !== null) render(<App />, root)
