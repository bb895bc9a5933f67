// What tarn-keeper does: holds descriptors under names, and gives them to whoever is the next tarnd. It never looks at
// them.
#pragma once

namespace tarn::keeper {

// Answers on this listening socket, whose file it removes, until there is nothing more to keep: true; or until it
// cannot listen any more.
bool keep_for(int listening);

}  // namespace tarn::keeper
