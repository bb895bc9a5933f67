#include "daemon/attachments/nbd_driver.hpp"

#include <linux/capability.h>
#include <linux/nbd-netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>

namespace tarn {

namespace {

// What one request brought.
struct Reply {
    int error = 0;  // an errno
    bool is_over = false;
};

int on_end(nl_msg*, void* argument) {
    static_cast<Reply*>(argument)->is_over = true;
    return NL_STOP;
}

int on_error(sockaddr_nl*, nlmsgerr* error, void* argument) {
    auto* const reply = static_cast<Reply*>(argument);
    reply->error = -error->error;
    reply->is_over = true;
    return NL_STOP;
}

Error error_of(int error) {
    switch (error) {
        case EBUSY: return {Errc::busy, error, "nbd: the device is in use"};
        case ENODEV:
        case ENOENT:
        case EINVAL: return {Errc::not_found, error, "nbd: there is no such device, or it is not connected"};
        case ENOSPC: return {Errc::no_space, error, "nbd: no device is free"};
        case EPERM:
        case EACCES: return {Errc::refused, error, "nbd: needs CAP_SYS_ADMIN"};
        default: return {Errc::io, error, "nbd"};
    }
}

class Message {
  public:
    Message(int family, uint8_t command) : message_(nlmsg_alloc(), nlmsg_free) {
        fits_ = message_ && genlmsg_put(message_.get(), NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, 0, command, 0);
    }
    void add(int attribute, uint32_t value) { fits_ = fits_ && nla_put_u32(message_.get(), attribute, value) == 0; }
    void add(int attribute, uint64_t value) { fits_ = fits_ && nla_put_u64(message_.get(), attribute, value) == 0; }
    void add(int attribute, const std::string& text) {
        fits_ = fits_ && nla_put_string(message_.get(), attribute, text.c_str()) == 0;
    }
    void add(int attribute, std::chrono::seconds time) { add(attribute, static_cast<uint64_t>(time.count())); }
    void add_sockets(std::span<const int> sockets) {
        nlattr* const list = begin_nest(NBD_ATTR_SOCKETS);
        for (const int socket : sockets) {
            nlattr* const item = begin_nest(NBD_SOCK_ITEM);
            add(NBD_SOCK_FD, static_cast<uint32_t>(socket));
            end_nest(item);
        }
        end_nest(list);
    }
    nl_msg* get() const { return fits_ ? message_.get() : nullptr; }

  private:
    nlattr* begin_nest(int attribute) {
        nlattr* const nest = fits_ ? nla_nest_start(message_.get(), attribute) : nullptr;
        fits_ = nest != nullptr;
        return nest;
    }
    void end_nest(nlattr* nest) {
        if (fits_) nla_nest_end(message_.get(), nest);
    }

    std::unique_ptr<nl_msg, decltype(&nlmsg_free)> message_;
    bool fits_;
};

// A connection to it.
class Connection {
  public:
    static Result<Connection> open() {
        Connection connection;
        if (!connection.socket_) return fail(Errc::io, ENOMEM, "nbd.netlink");
        if (genl_connect(connection.socket_.get()) != 0) return fail(Errc::io, errno, "nbd.netlink");
        connection.family_ = genl_ctrl_resolve(connection.socket_.get(), NBD_GENL_FAMILY_NAME);
        // libnl does not say why: it may also have been short of memory.
        std::error_code ignored;
        if (connection.family_ < 0 && std::filesystem::exists("/sys/module/nbd", ignored))
            return fail(Errc::io, 0, "nbd.netlink: the driver does not answer");
        if (connection.family_ < 0) return fail(Errc::unsupported, 0, "nbd: the kernel has no nbd driver");
        return connection;
    }
    int family() const { return family_; }

    Result<> ask(const Message& message) {
        if (!message.get()) return fail(Errc::io, EMSGSIZE, "nbd.netlink");
        Reply reply;
        const std::unique_ptr<nl_cb, decltype(&nl_cb_put)> callbacks(nl_cb_alloc(NL_CB_DEFAULT), nl_cb_put);
        if (!callbacks) return fail(Errc::io, ENOMEM, "nbd.netlink");
        nl_cb_set(callbacks.get(), NL_CB_ACK, NL_CB_CUSTOM, on_end, &reply);
        nl_cb_err(callbacks.get(), NL_CB_CUSTOM, on_error, &reply);
        if (nl_send_auto(socket_.get(), message.get()) < 0) return fail(Errc::io, errno, "nbd.netlink");
        while (!reply.is_over)
            if (nl_recvmsgs(socket_.get(), callbacks.get()) < 0 && !reply.is_over)
                return fail(Errc::io, errno, "nbd.netlink");
        if (reply.error != 0) return fail(error_of(reply.error));
        return {};
    }

  private:
    Connection() : socket_(nl_socket_alloc(), nl_socket_free) {}

    std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket_;
    int family_ = -1;
};

}  // namespace

Result<> NetlinkDriver::is_there() {
    TRY_VOID(Connection::open());
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
    if (::syscall(SYS_capget, &header, capabilities.data()) != 0) return fail(Errc::io, errno, "nbd.capget");
    if ((capabilities[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) == 0)
        return fail(error_of(EPERM));
    return {};
}

Result<> NetlinkDriver::connect(unsigned index, const Device& device, std::span<const int> sockets) {
    TRY(Connection kernel, Connection::open());
    Message message(kernel.family(), NBD_CMD_CONNECT);
    message.add(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
    message.add(NBD_ATTR_SIZE_BYTES, device.size_bytes);
    message.add(NBD_ATTR_BLOCK_SIZE_BYTES, uint64_t{device.block_size_bytes});
    message.add(NBD_ATTR_SERVER_FLAGS, device.flags);
    message.add(NBD_ATTR_TIMEOUT, device.request_timeout);
    message.add(NBD_ATTR_DEAD_CONN_TIMEOUT, device.reconnect_timeout);
    message.add(NBD_ATTR_BACKEND_IDENTIFIER, device.backend);
    message.add_sockets(sockets);
    const Result<> made = kernel.ask(message);
    if (!made && made.error().code == Errc::not_found)
        return fail(Errc::io, made.error().sys_errno, "nbd: the driver does not make a device of that number");
    return made;
}

Result<> NetlinkDriver::reconfigure(unsigned index, const Device& device, std::span<const int> sockets) {
    TRY(Connection kernel, Connection::open());
    Message message(kernel.family(), NBD_CMD_RECONFIGURE);
    message.add(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
    message.add(NBD_ATTR_BACKEND_IDENTIFIER, device.backend);
    if (sockets.empty()) {
        message.add(NBD_ATTR_SIZE_BYTES, device.size_bytes);
        message.add(NBD_ATTR_BLOCK_SIZE_BYTES, uint64_t{device.block_size_bytes});
    } else {
        message.add_sockets(sockets);
    }
    return kernel.ask(message);
}

Result<> NetlinkDriver::disconnect(unsigned index) {
    TRY(Connection kernel, Connection::open());
    Message message(kernel.family(), NBD_CMD_DISCONNECT);
    message.add(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
    return kernel.ask(message);
}

}  // namespace tarn
