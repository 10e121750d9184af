#include "translator.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "../../engine/settings.h"
#include "cache.h"

extern char **environ;

namespace sim {

namespace {

namespace files = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t default_seconds = 120;

// UHAL_SIM_PYTHON, else the interpreter that built the library, else the interpreter of the
// library's environment.
std::string find_interpreter(const std::string &translator) {
    const std::string chosen = Settings::text("PYTHON");
    if (!chosen.empty()) {
        return chosen;
    }
    const files::path simulators = files::path(translator).parent_path().parent_path();
    std::ifstream record(simulators / "build" / "python");
    std::string recorded;
    std::getline(record, recorded);
    if (!recorded.empty() && access(recorded.c_str(), X_OK) == 0) {
        return recorded;
    }
    // <environment>/lib/python3.x/site-packages/uhal_simulators
    const files::path packages = simulators.parent_path();
    const std::string version = packages.parent_path().filename().string();
    const files::path installed =
        packages.parent_path().parent_path().parent_path() / "bin" / version;
    return access(installed.c_str(), X_OK) == 0 ? installed.string() : "";
}

// Variables that the child must not inherit, because they inject libraries into a process.
std::vector<char *> child_environment() {
    std::vector<char *> variables;
    for (char **variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
        if (std::strncmp(*variable, "LD_PRELOAD=", 11) != 0) {
            variables.push_back(*variable);
        }
    }
    variables.push_back(nullptr);
    return variables;
}

// The child has its own process group, so that its compiler ends with it, and no blocked or ignored
// signals.
void set_attributes(posix_spawnattr_t &attributes) {
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
}

int spawn(const std::string &interpreter, const std::string &translator, int end, pid_t &process) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO);
    // The child does not inherit standard error: a reader of standard error would wait for the
    // child's end.
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    set_attributes(attributes);
    std::vector<char *> variables = child_environment();
    std::string words[] = {interpreter, "-I", translator, "serve"};
    char *const arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                               nullptr};
    const int problem = posix_spawn(&process, interpreter.c_str(), &actions, &attributes, arguments,
                                    variables.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return problem;
}

uint64_t deadline_seconds() {
    std::string ignored; // the driver has already complained
    return Settings::number("TRANSLATION_SECONDS", 1, 86400, default_seconds, ignored);
}

// "<kind>\t<line>\t<words>", with `\n` for line ends.
TranslatorAnswer read_answer(const std::string &text) {
    using Kind = TranslatorAnswer::Kind;
    const auto parts = split(text, '\t');
    const auto line = parts.size() == 3 ? to_number(parts[1]) : std::nullopt;
    if (text == "done") {
        return {};
    }
    if (!line) {
        return {Kind::failed, 0, "the translator answered '" + text + "'"};
    }
    std::string words;
    for (size_t at = 0; at < parts[2].size(); ++at) {
        const bool line_end = parts[2].compare(at, 2, "\\n") == 0;
        words += line_end ? '\n' : parts[2][at];
        at += line_end ? 1 : 0;
    }
    const Kind kind = parts[0] == "no_ptx"        ? Kind::no_ptx
                      : parts[0] == "unsupported" ? Kind::unsupported
                      : parts[0] == "unavailable" ? Kind::unavailable
                                                  : Kind::failed;
    return {kind, static_cast<unsigned>(*line), words};
}

} // namespace

TranslatorAnswer Translator::describe(const std::string &text_file,
                                      const std::string &description_file) {
    return ask({"describe", text_file, description_file});
}

TranslatorAnswer Translator::translate(const std::string &text_file, const std::string &entry,
                                       const std::string &check, const std::string &library_file) {
    return ask({"translate", text_file, entry, check, library_file});
}

TranslatorAnswer Translator::ask(const std::vector<std::string> &question) {
    using Kind = TranslatorAnswer::Kind;
    std::string text;
    for (const std::string &word : question) {
        text += (text.empty() ? "" : "\t") + word;
    }
    text += '\n';
    // Two attempts, because a translator ends after a long idle time.
    for (int attempt = 0; attempt < 2; ++attempt) {
        std::string why;
        if (process_ < 0 && !start(why)) {
            return {Kind::unavailable, 0, why};
        }
        std::string line;
        bool late = false;
        if (send_all(text) && receive_line(line, late)) {
            return read_answer(line);
        }
        stop();
        if (late) {
            return {Kind::failed, 0,
                    "the translator did not answer within " + std::to_string(deadline_seconds()) +
                        " s; UHAL_SIM_TRANSLATION_SECONDS gives it more time"};
        }
    }
    return {Kind::unavailable, 0,
            "the translator ends without an answer; UHAL_SIM_PYTHON names a Python (3.10 or later) "
            "to run it"};
}

bool Translator::start(std::string &why) {
    std::string ignored;
    const PtxCache *cache = PtxCache::get(ignored);
    const std::string interpreter = find_interpreter(cache->translator());
    if (interpreter.empty()) {
        why = "no Python was found to translate PTX with; UHAL_SIM_PYTHON names one";
        return false;
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        why = "no socket for the translator of PTX: " + std::string(std::strerror(errno));
        return false;
    }
    const int problem = spawn(interpreter, cache->translator(), ends[1], process_);
    close(ends[1]);
    if (problem != 0) {
        close(ends[0]);
        process_ = -1;
        why = interpreter + " cannot be started to translate PTX: " + std::strerror(problem);
        return false;
    }
    socket_ = ends[0];
    return true;
}

void Translator::stop() {
    kill(-process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    close(socket_);
    process_ = -1;
    socket_ = -1;
}

bool Translator::send_all(const std::string &text) {
    size_t sent = 0;
    while (sent < text.size()) {
        const ssize_t more = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (more < 0 && errno != EINTR) {
            return false;
        }
        sent += more < 0 ? 0 : static_cast<size_t>(more);
    }
    return true;
}

bool Translator::receive_line(std::string &line, bool &late) {
    const auto end = Clock::now() + std::chrono::seconds(deadline_seconds());
    line.clear();
    while (line.empty() || line.back() != '\n') {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        pollfd waiting = {socket_, POLLIN, 0};
        const int ready = left <= 0 ? 0 : poll(&waiting, 1, static_cast<int>(left));
        if (ready == 0) {
            late = true;
            return false;
        }
        char piece[4096];
        const ssize_t got = ready < 0 ? -1 : recv(socket_, piece, sizeof piece, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        line.append(piece, got < 0 ? 0 : static_cast<size_t>(got));
    }
    line.pop_back();
    return true;
}

} // namespace sim
